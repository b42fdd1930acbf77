"""Where training batches come from: pictures, captions, tensors, shards. Knows nothing of models or losses.

Reading order: `batch`, `needs`, `feed`, `opening`; then how the order is made (`mixing`, `order`, `buckets`,
`plan`) and how a micro-batch is (`micro_batches`, `preparation`, `pictures`, `report`); then the sources:
`synthetic`; `folder` with `captions`; `shards` with `shard_paths`, `download`, `tar_scan`, `shard_index` and
`shard_writer`; what stays far away (`streamed` with `remote_index`, `node_cache`, `object_store` and
`sharded_order`); `precomputed` with its index, shard and writer; `mds` and `mds_streamed`.
"""
