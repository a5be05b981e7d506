/* Recoverable memory: transactions on a mapped file. Link with librhino_c.a (cargo build -p rhino --example rhino_c).
 *
 * A database is a file of whole pages; its log lies beside it (PATH.log) and is made at the first trans_open. One
 * process has it open at a time. Stores between trans_begin and trans_commit last together or not at all, whatever
 * happens in between. All calls answer 0 or more, or a negative error number:
 *
 *   -EDEADLK  the transaction was chosen to break a deadlock: it was aborted, try again
 *   -ENOSPC   it is larger than the log may hold, or the disk is full: it was aborted
 *   -EBUSY    another process has the database open, or another thread is in a transaction on it
 *   -EUCLEAN  what is on the disk is not what a crash leaves
 *   -EROFS    the disk failed in a way that leaves open what is on it: trans_close and trans_open
 *   -EIO, -ENOMEM, -EMFILE, -ENOENT, -EINVAL
 *
 * A transaction that fails in the middle (trans_failure tells) is aborted at once; what the thread still loads and
 * stores until it ends is a private copy, and trans_commit answers the error. A system call that is given pages of a
 * database which the transaction has not touched fails with EFAULT.
 */
#ifndef RHINO_H
#define RHINO_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRANS_SETRANGE 0 /* trans_setrange says before each store what will change */
#define TRANS_PAGE 1     /* whole pages are logged */
#define TRANS_DIFF 2     /* what has changed is found by comparing; the default */

/* Makes a database of zeros; size is a multiple of 4096. */
int trans_create(const char *path, size_t size);
/* Opens a database and recovers it; answers its storage id. */
int trans_open(const char *path);
int trans_close(int sid);
/* How changes are found, before trans_mmap. */
int trans_detector(int sid, int detector);
/* Maps its first size bytes, at base if that is not NULL; answers the address, or a negative error number as one. */
void *trans_mmap(void *base, size_t size, int sid);
/* Begins a transaction of this thread, on the one database that is open; answers its id. */
int trans_begin(void);
int trans_begin_on(int sid);
/* Bytes of the database that will be changed; does nothing but with TRANS_SETRANGE. */
int trans_setrange(int sid, size_t offset, size_t length);
/* Load and store bytes without touching the mapping: no fault, and no trans_setrange. */
int trans_read(int sid, size_t offset, void *into, size_t length);
int trans_write(int sid, size_t offset, const void *from, size_t length);
int trans_commit(int tid);
/* Lasts with the next trans_commit or trans_flush. */
int trans_commit_lazy(int tid);
int trans_abort(int tid);
/* 0 while the transaction can commit, else why not. */
int trans_failure(int tid);
int trans_flush(int sid);
/* Writes what the log has into the file, and empties it. */
int trans_truncate(int sid);
/* A heap in the database, within a transaction; it takes all of the mapping. NULL if there is no room. */
void *trans_malloc(int sid, size_t size);
int trans_free(int sid, void *block);

#ifdef __cplusplus
}
#endif

#endif
