# cython: language_level=3
"""DiskWriter writes and syncs on a thread of its own, which never needs the interpreter's lock.

A Python thread has to wait for that lock each time a system call has ended: for as long as the event loop is busy. This
one writes to an eventfd when it has finished, and the event loop reads that like a socket.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from posix.types cimport off_t

import os


cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    int pthread_create(pthread_t*, void*, void* (*)(void*) noexcept nogil, void*)
    int pthread_join(pthread_t, void**)


cdef extern from "semaphore.h" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t*, int, unsigned int)
    int sem_destroy(sem_t*)
    int sem_post(sem_t*)
    int sem_wait(sem_t*)


cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)


cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int, const void*, size_t, off_t)
    ssize_t write(int, const void*, size_t)
    int fdatasync(int)


cdef struct Part:
    int fd
    const unsigned char* data
    Py_ssize_t size
    int64_t at
    int error


cdef struct Shared:
    sem_t asked
    bint is_wanted
    int ended_fd
    Part synced
    Part unsynced


cdef int _write_all(Part* part) noexcept nogil:
    """Return 0, or the number of the error."""
    cdef ssize_t written
    while part.size > 0:
        written = pwrite(part.fd, part.data, part.size, part.at)
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        part.data += written
        part.at += written
        part.size -= written
    return 0


cdef void _do(Shared* shared) noexcept nogil:
    cdef Part* synced = &shared.synced
    cdef Part* unsynced = &shared.unsynced
    synced.error = _write_all(synced)
    if not synced.error and fdatasync(synced.fd) != 0:
        synced.error = errno
    unsynced.error = 0 if synced.error else _write_all(unsynced)


cdef void* _serve(void* argument) noexcept nogil:
    cdef Shared* shared = <Shared*>argument
    cdef uint64_t one = 1
    while True:
        while sem_wait(&shared.asked) != 0:
            pass  # a signal
        if not shared.is_wanted:  # then it is asked to stop
            return NULL
        shared.is_wanted = False
        _do(shared)
        write(shared.ended_fd, &one, sizeof(one))


cdef class DiskWriter:
    """Makes one write at a time durable. `fileno` becomes readable when it has ended; then call `ended`."""

    cdef Shared _shared
    cdef pthread_t _thread
    cdef bint _runs
    cdef bint _is_under_way
    cdef readonly int fileno
    cdef const unsigned char[::1] _synced
    cdef const unsigned char[::1] _unsynced
    cdef object _descriptors

    def __cinit__(self):
        self.fileno = -1

    def __init__(self):
        cdef sigset_t every, before
        self.fileno = self._shared.ended_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._shared.is_wanted = False
        sem_init(&self._shared.asked, 0, 0)
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)  # signals are for the main thread
        error = pthread_create(&self._thread, NULL, _serve, &self._shared)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if error:
            raise OSError(error, os.strerror(error))
        self._runs = True

    def begin(self, synced, unsynced):
        """Write `synced` and sync its file; then, if that succeeded, write `unsynced`.

        Each has a file descriptor, data and the place in the file. `unsynced` is None if there is nothing to write.
        """
        assert self._runs and not self._is_under_way, "one write at a time, and none after `close`"
        self._descriptors = (synced, unsynced)
        self._synced = synced[1]
        _fill(&self._shared.synced, synced[0].number, self._synced, synced[2])
        if unsynced is None:
            self._shared.unsynced.size = 0
        else:
            self._unsynced = unsynced[1]
            _fill(&self._shared.unsynced, unsynced[0].number, self._unsynced, unsynced[2])
        self._is_under_way = self._shared.is_wanted = True
        sem_post(&self._shared.asked)

    def ended(self):
        """Return the numbers of the errors of both; 0 is success. Call it once, when `fileno` is readable."""
        os.eventfd_read(self.fileno)
        self._synced = self._unsynced = None
        self._descriptors = None
        self._is_under_way = False
        return self._shared.synced.error, self._shared.unsynced.error

    def close(self):
        """Wait for a write that is under way, and end the thread."""
        if not self._runs:
            return
        self._runs = False
        sem_post(&self._shared.asked)  # what was asked for before comes first
        with nogil:
            pthread_join(self._thread, NULL)
        sem_destroy(&self._shared.asked)
        os.close(self.fileno)
        self.fileno = -1

    def __dealloc__(self):
        if self._runs:
            self.close()


cdef void _fill(Part* part, int fd, const unsigned char[::1] data, int64_t at):
    part.fd = fd
    part.size = data.shape[0]
    part.data = &data[0] if part.size else NULL
    part.at = at
    part.error = 0
