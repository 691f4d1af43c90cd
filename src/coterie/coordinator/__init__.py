"""Group coordinator without I/O: `runtime/` keeps groups by partition, `classic/` has the rules of classic groups,
`offsets/` those of committed offsets.
"""
