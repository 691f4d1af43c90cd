"""`python -m billing confluent-kafka a`: run the service with a client library, under a client id."""

from __future__ import annotations

import os
import sys

from billing.book import Book
from billing.services import service

if __name__ == "__main__":
    library, client_id = sys.argv[1:]
    service(library)(Book(), os.environ["COTERIE_BOOTSTRAP_SERVERS"], client_id).run()
