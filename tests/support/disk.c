/*
 * A disk and a clock that misbehave as a story says: loaded before libc (LD_PRELOAD).
 *
 * DISK_CONTROL names a file of 64-bit words that the story writes while nginx runs, DISK_PATH what
 * the paths of the files begin with that it is about.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOW_MS,    /* each fsync takes so long */
    SYNC_AT,    /* the fsync of that number from now fails, once; 0 = none */
    RENAME_AT,  /* the rename likewise */
    ROOM,       /* bytes that can still be written, if FULL */
    FULL,       /* whether the disk is full after ROOM bytes */
    CLOCK,      /* seconds that the wall clock is off */
    SYNCS,      /* how many fsyncs there were */
    BAD,        /* the file whose fsync failed */
    AGAIN,      /* how many fsyncs of it there were since */
    WORDS
};

static int64_t *control;
static const char *prefix;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void
begin(void)
{
    const char *path = getenv("DISK_CONTROL");
    int fd;

    prefix = getenv("DISK_PATH");
    if (path == NULL || prefix == NULL || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0) {
        return;
    }
    prefix = strdup(prefix);
    control = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) {
        control = NULL;
    }
    close(fd);
}

static int64_t
word(int which)
{
    return control ? __atomic_load_n(&control[which], __ATOMIC_SEQ_CST) : 0;
}

/* Whether a countdown ends now. */
static int
strikes(int which)
{
    return word(which) > 0 && __atomic_sub_fetch(&control[which], 1, __ATOMIC_SEQ_CST) == 0;
}

static int
concerns(int fd)
{
    char link[64], path[4096];
    ssize_t n;

    if (control == NULL) {
        return 0;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n < 0) {
        return 0;
    }
    path[n] = '\0';
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

static int
sync_it(int fd, int (*real)(int))
{
    if (!concerns(fd)) {
        return real(fd);
    }
    __atomic_add_fetch(&control[SYNCS], 1, __ATOMIC_SEQ_CST);
    /* A little at a time: it ends early when the story says so. */
    for (int64_t ms = 0; ms < word(SLOW_MS); ms += 10) {
        struct timespec pause = { 0, 10 * 1000 * 1000 };
        nanosleep(&pause, NULL);
    }
    struct stat stat;
    int64_t inode = fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) ? (int64_t) stat.st_ino : 0;
    if (inode && inode == word(BAD)) {
        __atomic_add_fetch(&control[AGAIN], 1, __ATOMIC_SEQ_CST);
    }
    if (strikes(SYNC_AT)) {
        /* Kept open, so that no other file gets its number. */
        __atomic_store_n(&control[BAD], dup(fd) < 0 ? 0 : inode, __ATOMIC_SEQ_CST);
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int
fsync(int fd)
{
    REAL(fsync);
    return sync_it(fd, real);
}

int
fdatasync(int fd)
{
    REAL(fdatasync);
    return sync_it(fd, real);
}

ssize_t
write(int fd, const void *bytes, size_t n)
{
    REAL(write);
    if (word(FULL) && concerns(fd)) {
        int64_t room = word(ROOM);

        if (room <= 0) {
            errno = ENOSPC;
            return -1;
        }
        if ((int64_t) n > room) {
            n = room;
        }
        __atomic_sub_fetch(&control[ROOM], (int64_t) n, __ATOMIC_SEQ_CST);
    }
    return real(fd, bytes, n);
}

int
rename(const char *from, const char *to)
{
    REAL(rename);
    if (control && strncmp(to, prefix, strlen(prefix)) == 0 && strikes(RENAME_AT)) {
        errno = EIO;
        return -1;
    }
    return real(from, to);
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    REAL(gettimeofday);
    int done = real(now, zone);
    now->tv_sec += word(CLOCK);
    return done;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    int done = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        now->tv_sec += word(CLOCK);
    }
    return done;
}

time_t
time(time_t *now)
{
    struct timespec spec;
    clock_gettime(CLOCK_REALTIME, &spec);
    if (now) {
        *now = spec.tv_sec;
    }
    return spec.tv_sec;
}
