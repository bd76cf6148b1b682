/*
 * The site's own seccomp list. It lies on top of the engine's, which it can only narrow: the kernel takes the stricter
 * answer of the two. It takes away parts of the kernel that computing does not need and that many escapes went
 * through, and that engines allow by default (all or the older ones): io_uring, the crypto, VM and firewall sockets,
 * and the whole second system-call table for 32-bit programs.
 *
 * Whoever asks is told that the kernel has no such thing (ENOSYS, EAFNOSUPPORT), so that libraries fall back.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "no list for this architecture"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "an argument's low half is expected first"
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SAY(errno_value) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (errno_value))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define IF(value, instructions) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (instructions))
#define GOTO_IF(value, instructions) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (instructions), 0)
#define NO_CALL(number) IF(number, 1), SAY(ENOSYS)

static struct sock_filter filter[] = {
    LOAD(arch),
    GOTO_IF(NATIVE, 1),
    SAY(ENOSYS),
    LOAD(nr),
#if defined(__x86_64__)
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* x32: the same calls under other numbers */
    SAY(ENOSYS),
    NO_CALL(154 /* modify_ldt */),
#endif
    NO_CALL(425 /* io_uring_setup */),
    NO_CALL(426 /* io_uring_enter */),
    NO_CALL(427 /* io_uring_register */),
    NO_CALL(447 /* memfd_secret */),
    NO_CALL(SYS_userfaultfd),
    NO_CALL(SYS_bpf),
    NO_CALL(SYS_perf_event_open),
    NO_CALL(SYS_add_key),
    NO_CALL(SYS_request_key),
    NO_CALL(SYS_keyctl),
    NO_CALL(SYS_ptrace),
    NO_CALL(SYS_name_to_handle_at),
    NO_CALL(SYS_vmsplice),
    NO_CALL(SYS_remap_file_pages),
    IF(SYS_socket, 6),
    LOAD(args[0]),
    GOTO_IF(AF_UNIX, 4),
    GOTO_IF(AF_INET, 4),
    GOTO_IF(AF_INET6, 3),
    GOTO_IF(AF_NETLINK, 8),
    SAY(EAFNOSUPPORT),
    ALLOW,
    LOAD(args[2]), /* of AF_INET: TCP and UDP, by number or by default */
    GOTO_IF(0, 3),
    GOTO_IF(6, 2),
    GOTO_IF(17, 1),
    SAY(EPROTONOSUPPORT),
    ALLOW,
    LOAD(args[2]), /* of AF_NETLINK: routes, for the names of interfaces */
    GOTO_IF(0, 1),
    SAY(EPROTONOSUPPORT),
    ALLOW,
};

/* Before: one thread. After: this process and everything below it is under the list for ever. 0, or -1 with errno. */
static int narrow(void)
{
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
