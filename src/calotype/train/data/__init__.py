"""Training data: sources of samples, the order of samples, and the batches made from them.

Reading order: `types`, `requirements`, `dataloader`, `factory`; then the order of samples (`hashing`,
`sampler`, `aspect_buckets`, `batch_sampler`) and the making of a micro-batch (`workers`, `collate`,
`image_transforms`, `bad_samples`); then `sources/`: `synthetic`; `folder` with `captions`; `webdataset` with
`shard_urls`, `http_download`, `tar_index` and `webdataset_writer`; remote shards (`remote_shards` with
`remote_index`, `node_cache`, `object_store`, and `sharded_sampler` above); `mds` and `mds_streaming`; and
`precomputed/` with its index, shard and writer.
"""
