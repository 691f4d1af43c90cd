"""A service that bills orders: one consumer of the topic `orders`, written with each of three client libraries."""
