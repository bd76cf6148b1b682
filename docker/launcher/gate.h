/*
 * The gate: what closes the network of a job that was granted one.
 *
 *   launcher gate RESOLVERS CLOSED
 *
 * PID 1 of a container that owns the network namespace which the job's container joins later. As root with
 * CAP_NET_ADMIN alone it puts rules into the namespace, gives everything up, says "gate: ready" and sleeps.
 * The rules outlive it: they go with the namespace, which the job's processes hold.
 *
 * The rules stand at the output hook, behind routing: a job can name the interface or an address of its own for a
 * packet, and then no route is asked, but every packet comes by here.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <net/if.h>
#include <netinet/in.h>

#include "rules.h"

#define MOST_CLOSED 512
/* Where an engine's resolver listens, inside the namespace. It is closed, so it also tells whether rules stand. */
#define CANARY "127.0.0.11"

/* What comes in: answers to what went out, and errors about it. */
static void make_input(void)
{
    make_chain("input", NF_INET_LOCAL_IN);
    size_t rule = begin_rule("input");
    only_interface(NFT_META_IIF);
    end_rule(rule, NF_ACCEPT);
    rule = begin_rule("input");
    load_meta(NFT_META_NFPROTO);
    only_byte(NFT_CMP_NEQ, NFPROTO_IPV4);
    end_rule(rule, NF_DROP);
    rule = begin_rule("input");
    only_state(NF_CT_STATE_BIT(IP_CT_ESTABLISHED));
    end_rule(rule, NF_ACCEPT);
    rule = begin_rule("input");
    load_meta(NFT_META_L4PROTO);
    only_byte(NFT_CMP_EQ, IPPROTO_ICMP);
    only_state(NF_CT_STATE_BIT(IP_CT_RELATED));
    end_rule(rule, NF_ACCEPT);
}

/* Names are asked of the resolvers and of nobody else; otherwise TCP and UDP go to whatever is not closed. */
static void open_protocol(uint8_t protocol, const struct network *resolvers, size_t count)
{
    const uint16_t names = htons(53);
    for (size_t i = 0; i <= count; i++) {
        size_t rule = begin_rule("output");
        load_meta(NFT_META_L4PROTO);
        only_byte(NFT_CMP_EQ, protocol);
        load_packet(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
        only_if(NFT_CMP_EQ, &names, sizeof names);
        if (i < count)
            only_to(resolvers[i]);
        end_rule(rule, i < count ? NF_ACCEPT : NF_DROP);
    }
    size_t rule = begin_rule("output");
    load_meta(NFT_META_L4PROTO);
    only_byte(NFT_CMP_EQ, protocol);
    end_rule(rule, NF_ACCEPT);
}

static void make_output(const struct network *closed, size_t closed_count, const struct network *resolvers, size_t count)
{
    const struct network canary = {inet_addr(CANARY), ~0u};
    make_chain("output", NF_INET_LOCAL_OUT);
    size_t rule = begin_rule("output");
    load_meta(NFT_META_NFPROTO);
    only_byte(NFT_CMP_EQ, NFPROTO_IPV4);
    only_to(canary);
    end_rule(rule, NF_DROP);
    rule = begin_rule("output");
    only_interface(NFT_META_OIF);
    end_rule(rule, NF_ACCEPT);
    rule = begin_rule("output");
    load_meta(NFT_META_NFPROTO);
    only_byte(NFT_CMP_NEQ, NFPROTO_IPV4);
    end_rule(rule, NF_DROP);
    rule = begin_rule("output"); /* a header with options could name another place to go by */
    const uint8_t length = 0x0f;
    load_packet(NFT_PAYLOAD_NETWORK_HEADER, 0, 1);
    keep_bits(&length, 1);
    only_byte(NFT_CMP_NEQ, 5);
    end_rule(rule, NF_DROP);
    for (size_t i = 0; i < closed_count; i++) {
        rule = begin_rule("output");
        only_to(closed[i]);
        end_rule(rule, NF_DROP);
    }
    open_protocol(IPPROTO_TCP, resolvers, count);
    open_protocol(IPPROTO_UDP, resolvers, count);
}

static void install(const struct network *closed, size_t closed_count, const struct network *resolvers, size_t count)
{
    begin_message(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    end_message();
    begin_message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, NFPROTO_INET, 0);
    text(NFTA_TABLE_NAME, "gate");
    end_message();
    make_chain("forward", NF_INET_FORWARD); /* nothing passes through */
    make_input();
    make_output(closed, closed_count, resolvers, count);
    begin_message(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    end_message();
    send_batch(batch.sequence - 2);
}

/* Whether the rules stand in this namespace: a datagram to a closed place is refused before it leaves. */
static bool gate_is_closed(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr(CANARY)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool closed = fd >= 0 && sendto(fd, "", 1, 0, (struct sockaddr *)&to, sizeof to) < 0 && errno == EPERM;
    if (fd >= 0)
        close(fd);
    return closed;
}

/* `A.B.C.D` or `A.B.C.D/BITS`, comma-separated; an empty text is none. Returns how many. */
static size_t read_networks(char *list, struct network *into, size_t most)
{
    size_t count = 0;
    for (char *rest = list, *one; (one = strsep(&rest, ","));) {
        struct in_addr address;
        char *slash = strchr(one, '/');
        int64_t bits = slash ? number(one, slash + 1, 32) : 32;
        if (!*one && !count && !rest)
            break;
        if (slash)
            *slash = 0;
        if (count == most || inet_pton(AF_INET, one, &address) != 1)
            refuse(one, "no address, or too many of them");
        into[count].mask = bits ? htonl(~0u << (32 - bits)) : 0;
        into[count].address = address.s_addr & into[count].mask;
        count++;
    }
    return count;
}

/* The namespace's own networks, the bridge with its gateway and all neighbours among them. Returns the new count. */
static size_t add_own_networks(struct network *into, size_t count, size_t most)
{
    struct ifaddrs *first;
    size_t before = count;
    if (getifaddrs(&first) < 0)
        refuse("gate: interfaces", strerror(errno));
    for (struct ifaddrs *one = first; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || one->ifa_flags & IFF_LOOPBACK)
            continue;
        if (count == most)
            refuse("gate: interfaces", "too many");
        into[count].mask = ((struct sockaddr_in *)one->ifa_netmask)->sin_addr.s_addr;
        into[count].address = ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr & into[count].mask;
        count++;
    }
    freeifaddrs(first);
    if (count == before)
        refuse("gate", "there is no network here");
    return count;
}

static void give_everything_up(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capset, &head, none) < 0 || narrow() < 0)
        refuse("gate: capabilities", strerror(errno));
}

/* PID 1 of a gate's container. Returns when it is told to end. */
static int be_the_gate(char *resolver_list, char *closed_list)
{
    static struct network closed[MOST_CLOSED], resolvers[8];
    size_t count = read_networks(resolver_list, resolvers, sizeof resolvers / sizeof *resolvers);
    size_t closed_count = read_networks(closed_list, closed, MOST_CLOSED);
    sigset_t end;
    int signal;
    closed_count = add_own_networks(closed, closed_count, MOST_CLOSED);
    install(closed, closed_count, resolvers, count);
    give_everything_up();
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL);
    dprintf(STDOUT_FILENO, "gate: ready\n");
    return sigwait(&end, &signal);
}

/* One line for each IPv4 address of this network namespace, loopback's left out. */
static int tell_addresses(void)
{
    struct ifaddrs *first;
    char shown[INET_ADDRSTRLEN];
    if (getifaddrs(&first) < 0)
        refuse("addresses", strerror(errno));
    for (struct ifaddrs *one = first; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !(one->ifa_flags & IFF_LOOPBACK))
            dprintf(STDOUT_FILENO, "%s\n",
                    inet_ntop(AF_INET, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, shown, sizeof shown));
    freeifaddrs(first);
    return 0;
}
