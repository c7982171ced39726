/* Kills the process at its N-th change of a file below CRASH_HOME: loaded with LD_PRELOAD in front of the C library.
 *
 * CRASH_AT=N   die when the N-th call begins (0: never)
 * CRASH_TORN=1 if that call writes, let it write the first half
 * CRASH_COUNT  file for the number of calls, written when the process ends by itself
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls;

static int is_below(const char *path)
{
    const char *home = getenv("CRASH_HOME");
    return home != NULL && path != NULL && strncmp(path, home, strlen(home)) == 0;
}

static int is_ours(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path);
}

/* 1 when this is the call to die in. */
static int strikes(void)
{
    const char *at = getenv("CRASH_AT");
    calls++;
    return at != NULL && calls == atol(at);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

static int torn(void)
{
    const char *word = getenv("CRASH_TORN");
    return word != NULL && *word == '1';
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t, "write", int, const void *, size_t);
    if (is_ours(fd) && strikes()) {
        if (torn())
            real(fd, data, size / 2);
        die();
    }
    return real(fd, data, size);
}

#define PWRITE(name, offset_type)                                                                                      \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset)                                            \
    {                                                                                                                  \
        ssize_t (*real)(int, const void *, size_t, offset_type) =                                                      \
            REAL(ssize_t, #name, int, const void *, size_t, offset_type);                                              \
        if (is_ours(fd) && strikes()) {                                                                                \
            if (torn())                                                                                                \
                real(fd, data, size / 2, offset);                                                                      \
            die();                                                                                                     \
        }                                                                                                              \
        return real(fd, data, size, offset);                                                                           \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define ON_FILE(name, parameters, arguments, ...)                                                                      \
    int name parameters                                                                                                \
    {                                                                                                                  \
        if (is_ours(fd) && strikes())                                                                                  \
            die();                                                                                                     \
        return REAL(int, #name, __VA_ARGS__) arguments;                                                                \
    }
ON_FILE(ftruncate, (int fd, off_t size), (fd, size), int, off_t)
ON_FILE(ftruncate64, (int fd, off64_t size), (fd, size), int, off64_t)
ON_FILE(fsync, (int fd), (fd), int)
ON_FILE(fdatasync, (int fd), (fd), int)
ON_FILE(fchmod, (int fd, mode_t mode), (fd, mode), int, mode_t)

#define ON_PATH(name, parameters, arguments, ...)                                                                      \
    int name parameters                                                                                                \
    {                                                                                                                  \
        if (is_below(path) && strikes())                                                                               \
            die();                                                                                                     \
        return REAL(int, #name, __VA_ARGS__) arguments;                                                                \
    }
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
ON_PATH(rmdir, (const char *path), (path), const char *)
ON_PATH(unlink, (const char *path), (path), const char *)
ON_PATH(rename, (const char *path, const char *to), (path, to), const char *, const char *)
ON_PATH(link, (const char *path, const char *to), (path, to), const char *, const char *)

int unlinkat(int folder, const char *path, int flags)
{
    /* Python's rmtree names files by their folder's descriptor. */
    if (is_ours(folder) && strikes())
        die();
    return REAL(int, "unlinkat", int, const char *, int)(folder, path, flags);
}

#define ON_OPEN(name)                                                                                                  \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                      \
        va_end(rest);                                                                                                  \
        if ((flags & O_CREAT) && is_below(path) && strikes())                                                          \
            die();                                                                                                     \
        return REAL(int, #name, const char *, int, ...)(path, flags, mode);                                            \
    }
ON_OPEN(open)
ON_OPEN(open64)

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("CRASH_COUNT");
    FILE *file = path == NULL ? NULL : fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%ld\n", calls);
        fclose(file);
    }
}
