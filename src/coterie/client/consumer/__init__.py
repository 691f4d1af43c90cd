"""The consumer: public API, fetcher, and the asyncio that runs them."""
