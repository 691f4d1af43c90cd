# Compiled: see _pure_records.py, of which this is the twin.

from coterie.protocol._pure_iteration import AsyncRecordIterator as AsyncRecordIterator
from coterie.protocol._pure_iteration import RecordBuffer as RecordBuffer
from coterie.protocol._pure_iteration import RecordIterator as RecordIterator
from coterie.protocol._pure_quick_append import QuickAppend as QuickAppend
from coterie.protocol._pure_quick_append import SentRecord as SentRecord
from coterie.protocol._pure_records import Columns as Columns
from coterie.protocol._pure_records import Record as Record
from coterie.protocol._pure_records import RecordWriter as RecordWriter
from coterie.protocol._pure_records import append_rows as append_rows
from coterie.protocol._pure_records import murmur2 as murmur2
from coterie.protocol._pure_records import partitions_of_keys as partitions_of_keys
from coterie.protocol._pure_records import read_records as read_records
