"""The producer: public API, batches, and the asyncio that sends them."""
