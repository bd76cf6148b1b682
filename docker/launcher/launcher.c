/*
 * launcher: PID 1 of every job container.
 *
 *   launcher [--gated] CONTROL_DIR DEADLINE_S LOG_CAP_BYTES GRACE_S -- ARGV...
 *
 * Starts ARGV, pumps its stdout and stderr into capped files, forwards signals from outside, ends the job at its
 * deadline, kills whatever the job leaves behind and, last of all, writes what happened into CONTROL_DIR/marker.
 * README.md beside this file describes the files, the marker and the exit codes.
 *
 * It runs with the job's own uid and no capability. The job therefore shares its rights but not its memory: the
 * launcher is undumpable, and as PID 1 it cannot be killed or stopped from inside its own PID namespace.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "filter.h"

enum {
    EXIT_REFUSED = 125,
    EXIT_DEADLINE = 124,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    CHUNK = 64 * 1024,       /* one read; also the kernel's default pipe size */
    PIPE_BYTES = 256 * 1024, /* asked for, not needed */
};

#define SECOND INT64_C(1000000000)
/* After a short read the pipes rest this long, so that a flood of tiny writes is read in large pieces. */
#define REST (2 * INT64_C(1000000))
#define NEVER INT64_MAX

struct stream {
    int pipe; /* read end, -1 once it ended */
    int file;
    bool full; /* the cap or an error was met: the file stays a prefix of what was said */
    int64_t kept, cut;
};

struct run {
    int signals, marker, exec_report;
    struct stream out[2];
    int64_t cap, grace;
    int64_t deadline_at, kill_at, read_at; /* CLOCK_MONOTONIC, ns */
    pid_t child;
    int status; /* as waitpid gave it */
    bool deadline, termed;
    int64_t started, ended;
    char boot_start[40];
};

static char buffer[CHUNK];

static int own_marker = -1; /* from when it is ours until the job runs, and may write there */

/* What was refused once the marker is ours stands in it: the job's own end can never look like that. */
static int refuse(const char *what, const char *why)
{
    if (own_marker >= 0) {
        char line[128];
        int size = snprintf(line, sizeof line, "{\"v\":1,\"status\":\"refused\",\"code\":%d,\"refused\":\"%s\"}\n",
                            EXIT_REFUSED, what);
        if (pwrite(own_marker, line, size, 0) != size)
            (void)!ftruncate(own_marker, 0);
    }
    dprintf(STDERR_FILENO, "launcher: %s: %s\n", what, why);
    _exit(EXIT_REFUSED);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* A whole decimal number from 0 to most; anything else is refused. */
static int64_t number(const char *name, const char *text, int64_t most)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > most)
        refuse(name, "not a number in range");
    return value;
}

#include "gate.h"

static void read_boot_id(char id[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, id, 36);
    if (fd >= 0)
        close(fd);
    id[size == 36 ? 36 : 0] = 0;
    if (strspn(id, "0123456789abcdef-") != strlen(id))
        id[0] = 0;
}

/* Nothing that whoever started us left open may reach the job. */
static void close_inherited(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
        return;
#endif
    DIR *folder = opendir("/proc/self/fd"); /* close_range is missing, or the engine's seccomp list is older */
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (fd > 2 && fd != dirfd(folder))
            close(fd);
    }
    closedir(folder);
}

static int open_control(int folder, const char *name)
{
    struct stat facts;
    int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &facts) < 0)
        refuse(name, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        refuse(name, "not a regular file");
    return fd;
}

/* The marker is made non-empty at once: a container that is started again, even after we were killed, does nothing. */
static void open_files(struct run *run, const char *path)
{
    struct stat facts;
    int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        refuse(path, strerror(errno));
    run->out[0].file = open_control(folder, "stdout");
    run->out[1].file = open_control(folder, "stderr");
    run->marker = open_control(folder, "marker");
    close(folder);
    if (fstat(run->marker, &facts) < 0 || facts.st_size != 0)
        refuse("marker", "not empty: this job was started before");
    if (pwrite(run->marker, "\n", 1, 0) != 1)
        refuse("marker", strerror(errno));
    own_marker = run->marker;
}

/* Like execvp, but never falls back to a shell for a file that is no program. Returns only with errno set. */
static void exec_in_path(char **argv)
{
    if (strchr(argv[0], '/') || !argv[0][0]) {
        execve(argv[0], argv, environ);
        return;
    }
    const char *path = getenv("PATH");
    int met = ENOENT;
    for (const char *from = path ? path : "/usr/local/bin:/usr/bin:/bin";; from++) {
        size_t length = strcspn(from, ":");
        char file[4096];
        int size = snprintf(file, sizeof file, "%.*s/%s", length ? (int)length : 1, length ? from : ".", argv[0]);
        errno = ENAMETOOLONG;
        if (length < sizeof file && (size_t)size < sizeof file)
            execve(file, argv, environ);
        if (errno == EACCES && faccessat(AT_FDCWD, file, F_OK, 0) == 0)
            met = EACCES; /* it is there; a folder of PATH that is closed to the job is only passed over */
        else if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG)
            return;
        from += length;
        if (!*from)
            break;
    }
    errno = met;
}

static _Noreturn void be_the_job(const int ends[2], int report, char **argv)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(ends[0], 1) < 0 || dup2(ends[1], 2) < 0)
        goto failed;
    setsid();
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &plain, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    exec_in_path(argv);
failed:;
    int why = errno;
    bool absent = why == ENOENT || why == ENOTDIR;
    if (write(report, &why, sizeof why) != sizeof why)
        _exit(EXIT_REFUSED);
    _exit(absent ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* Before: files open, signals blocked. After: the job runs, run->child and the read ends of its pipes are set. */
static void start(struct run *run, char **argv)
{
    int ends[2], report[2], pair[2];
    for (int i = 0; i < 2; i++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            refuse("pipe", strerror(errno));
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        fcntl(pair[0], F_SETPIPE_SZ, PIPE_BYTES);
        run->out[i].pipe = pair[0];
        ends[i] = pair[1];
    }
    if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
        refuse("pipe", strerror(errno));
    run->started = now();
    run->child = fork();
    if (run->child < 0)
        refuse("fork", strerror(errno));
    if (run->child == 0)
        be_the_job(ends, report[1], argv);
    own_marker = -1;
    close(ends[0]);
    close(ends[1]);
    close(report[1]);
    run->exec_report = report[0];
}

/* Writes what the cap allows; from the first byte that could not be kept on, everything is counted as cut. */
static void keep(struct stream *stream, const char *from, int64_t size, int64_t cap)
{
    while (size > 0 && !stream->full) {
        int64_t room = cap - stream->kept;
        ssize_t done = room > 0 ? pwrite(stream->file, from, size < room ? size : room, stream->kept) : 0;
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) { /* the cap, a full disk, the file size limit */
            stream->full = true;
            break;
        }
        stream->kept += done;
        from += done;
        size -= done;
    }
    stream->cut += size;
}

/* One read from one pipe. Returns the bytes read; 0 when there is nothing now or nothing any more. */
static ssize_t pump(struct stream *stream, int64_t cap)
{
    if (stream->pipe < 0)
        return 0;
    ssize_t size = read(stream->pipe, buffer, sizeof buffer);
    if (size > 0) {
        keep(stream, buffer, size, cap);
        return size;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(stream->pipe); /* the job closed it early, which is no reason to end */
        stream->pipe = -1;
    }
    return 0;
}

/* Takes every child that is dead by now. Returns true when the job's main process was among them. */
static bool reap(struct run *run)
{
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == run->child) {
            run->status = status;
            run->ended = now();
            ended = true;
        }
    }
    return ended;
}

/* Passes on what came from outside the container; the sender of such a signal has no PID in here, so it reads as 0. */
static void forward(struct run *run, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    if (number == SIGCHLD || info->ssi_pid != 0)
        return;
    if (kill(-run->child, number) < 0)
        kill(run->child, number); /* so early that it does not lead its group yet */
    if (number == SIGTERM && !run->termed) {
        run->termed = true;
        if (run->kill_at == NEVER)
            run->kill_at = now() + run->grace;
    }
}

static void keep_time(struct run *run, int64_t time)
{
    if (time >= run->deadline_at) {
        run->deadline = true;
        run->deadline_at = NEVER;
        if (run->kill_at == NEVER)
            run->kill_at = time + run->grace;
        kill(-1, SIGTERM);
    }
    if (time >= run->kill_at) {
        run->kill_at = NEVER;
        kill(-1, SIGKILL);
    }
}

/* Sleeps until a signal, a byte or the next moment that matters. */
static void rest(struct run *run, struct pollfd polled[3], int64_t time)
{
    bool reading = time >= run->read_at;
    int64_t until = run->deadline_at < run->kill_at ? run->deadline_at : run->kill_at;
    if (!reading && run->read_at < until)
        until = run->read_at;
    polled[0] = (struct pollfd){.fd = run->signals, .events = POLLIN};
    for (int i = 0; i < 2; i++)
        polled[i + 1] = (struct pollfd){.fd = reading ? run->out[i].pipe : -1, .events = POLLIN};
    int64_t left = until > time ? until - time : 0;
    struct timespec wait = {.tv_sec = left / SECOND, .tv_nsec = left % SECOND};
    if (ppoll(polled, 3, until == NEVER ? NULL : &wait, NULL) < 0)
        polled[0].revents = polled[1].revents = polled[2].revents = 0;
}

/* Returns when the job's main process has ended. */
static void watch(struct run *run)
{
    for (;;) {
        struct pollfd polled[3];
        struct signalfd_siginfo info[8];
        keep_time(run, now());
        rest(run, polled, now());
        if (polled[0].revents) {
            ssize_t size = read(run->signals, info, sizeof info);
            for (ssize_t i = 0; i < size / (ssize_t)sizeof *info; i++)
                forward(run, &info[i]);
            if (reap(run))
                return;
        }
        if (polled[1].revents || polled[2].revents) {
            ssize_t first = pump(&run->out[0], run->cap), second = pump(&run->out[1], run->cap);
            if (first < CHUNK && second < CHUNK)
                run->read_at = now() + REST;
        }
    }
}

/* Before: the main process is dead. After: nothing else lives in this PID namespace and the pipes are empty. */
static void clear(struct run *run)
{
    pid_t pid;
    do {
        kill(-1, SIGKILL);
        pid = waitpid(-1, NULL, 0);
    } while (pid > 0 || errno == EINTR);
    for (int i = 0; i < 2; i++) /* a pipe holds at most a mebibyte, and nobody is left to fill it again */
        for (int reads = 0; reads < 64 && pump(&run->out[i], run->cap) > 0; reads++)
            continue;
}

static const char *yes(bool value)
{
    return value ? "true" : "false";
}

static int64_t microseconds(struct timeval time)
{
    return time.tv_sec * INT64_C(1000000) + time.tv_usec;
}

/*
 * The last act. The job may have written to these files itself: the logs end where we ended them, and the marker is
 * replaced whole or, if that fails, left empty. Returns false when it could not be written.
 */
static bool write_marker(const struct run *run, int exec_errno)
{
    bool exited = WIFEXITED(run->status);
    const struct stream *out = &run->out[0], *err = &run->out[1];
    char line[1024], boot_end[40];
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    read_boot_id(boot_end);
    int size = snprintf(
        line, sizeof line,
        "{\"v\":1,\"status\":\"%s\",\"code\":%d,\"signal\":%d,\"exec_errno\":%d,\"deadline\":%s,\"termed\":%s,"
        "\"stdout_bytes\":%" PRId64 ",\"stderr_bytes\":%" PRId64 ",\"stdout_cut\":%" PRId64 ",\"stderr_cut\":%" PRId64
        ",\"boot_id_start\":\"%s\",\"boot_id_end\":\"%s\",\"started_ns\":%" PRId64 ",\"ended_ns\":%" PRId64
        ",\"user_us\":%" PRId64 ",\"system_us\":%" PRId64 ",\"max_rss_kib\":%ld}\n",
        exec_errno ? "exec_failed" : exited ? "exited" : "signaled", exited ? WEXITSTATUS(run->status) : 0,
        exited ? 0 : WTERMSIG(run->status), exec_errno, yes(run->deadline), yes(run->termed), out->kept, err->kept,
        out->cut, err->cut, run->boot_start, boot_end, run->started, run->ended, microseconds(used.ru_utime),
        microseconds(used.ru_stime), used.ru_maxrss);
    for (int i = 0; i < 2; i++) {
        struct stat facts;
        if (fstat(run->out[i].file, &facts) == 0 && facts.st_size > run->out[i].kept)
            (void)!ftruncate(run->out[i].file, run->out[i].kept);
    }
    bool written = pwrite(run->marker, line, size, 0) == size;
    return ftruncate(run->marker, written ? size : 0) == 0 && written;
}

static int finish(struct run *run)
{
    int exec_errno = 0;
    if (read(run->exec_report, &exec_errno, sizeof exec_errno) != sizeof exec_errno)
        exec_errno = 0;
    if (!write_marker(run, exec_errno))
        return EXIT_REFUSED;
    if (run->deadline)
        return EXIT_DEADLINE;
    return WIFEXITED(run->status) ? WEXITSTATUS(run->status) : 128 + WTERMSIG(run->status);
}

int main(int argc, char **argv)
{
    struct run run = {.deadline_at = NEVER, .kill_at = NEVER};
    sigset_t set;
    bool gated = argc > 1 && !strcmp(argv[1], "--gated");
    if (getpid() != 1) /* kill(-1) below means everything in this PID namespace; a gate's rules are its namespace's */
        refuse("usage", "runs only as PID 1 of a container");
    if (argc == 2 && !strcmp(argv[1], "addresses"))
        return tell_addresses();
    if (argc == 4 && !strcmp(argv[1], "gate"))
        return be_the_gate(argv[2], argv[3]);
    argc -= gated;
    argv += gated;
    if (argc < 7 || strcmp(argv[5], "--"))
        refuse("usage", "launcher [--gated] CONTROL_DIR DEADLINE_S LOG_CAP_BYTES GRACE_S -- ARGV...");
    if (prctl(PR_SET_DUMPABLE, 0) < 0)
        refuse("dumpable", strerror(errno));
    int64_t deadline = number("DEADLINE_S", argv[2], INT64_C(1000000000)) * SECOND;
    run.cap = number("LOG_CAP_BYTES", argv[3], INT64_C(1) << 40);
    run.grace = number("GRACE_S", argv[4], 86400) * SECOND;
    if (deadline == 0)
        refuse("DEADLINE_S", "must be at least 1");
    close_inherited();
    open_files(&run, argv[1]);
    if (gated && !gate_is_closed())
        refuse("network", "its gate is not closed: no rules stand here");
    read_boot_id(run.boot_start);
    sigfillset(&set); /* also XFSZ and PIPE: a blocked one does nothing, the write fails and is counted */
    sigprocmask(SIG_SETMASK, &set, NULL);
    sigemptyset(&set);
    for (const int *number = (int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, 0}; *number; number++)
        sigaddset(&set, *number);
    run.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run.signals < 0)
        refuse("signalfd", strerror(errno));
    if (narrow() < 0)
        refuse("seccomp", strerror(errno));
    start(&run, argv + 6);
    run.deadline_at = run.started + deadline;
    watch(&run);
    clear(&run);
    return finish(&run);
}
