"""The implementations of the nodes, with torch. Values on links are in host memory, whatever the device."""
