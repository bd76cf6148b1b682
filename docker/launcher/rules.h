/*
 * Rules for the kernel's nf_tables, in one message: nothing here knows which rules those are (gate.h says).
 *
 * A rule is begun, has expressions that each let it go on or not, and ends with a verdict.
 */
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#define LOOPBACK 1 /* the index of `lo`, the first interface of every namespace */

struct network {
    uint32_t address, mask; /* network byte order */
};

/* One message to the kernel: all rules, or none of them. */
static struct {
    char bytes[128 * 1024];
    size_t size, message, expression, expression_data;
    uint32_t sequence;
} batch;

static void put(const void *bytes, size_t size)
{
    size_t padded = NLMSG_ALIGN(size);
    if (batch.size + padded > sizeof batch.bytes)
        refuse("gate", "too many rules");
    memcpy(batch.bytes + batch.size, bytes, size);
    memset(batch.bytes + batch.size + size, 0, padded - size);
    batch.size += padded;
}

static void begin_message(uint16_t type, uint16_t flags, uint8_t family, uint16_t resource)
{
    struct nlmsghdr head = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = batch.sequence++};
    struct nfgenmsg more = {.nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(resource)};
    batch.message = batch.size;
    put(&head, sizeof head);
    put(&more, sizeof more);
}

static void end_message(void)
{
    ((struct nlmsghdr *)(batch.bytes + batch.message))->nlmsg_len = batch.size - batch.message;
}

static void attribute(uint16_t type, const void *value, size_t size)
{
    struct nlattr head = {.nla_type = type, .nla_len = NLA_HDRLEN + size};
    put(&head, sizeof head);
    put(value, size);
}

static void text(uint16_t type, const char *value)
{
    attribute(type, value, strlen(value) + 1);
}

static void number32(uint16_t type, uint32_t value)
{
    value = htonl(value);
    attribute(type, &value, sizeof value);
}

/* What is put until `close_nest(place)` lies inside. */
static size_t open_nest(uint16_t type)
{
    size_t place = batch.size;
    attribute(type | NLA_F_NESTED, "", 0);
    return place;
}

static void close_nest(size_t place)
{
    ((struct nlattr *)(batch.bytes + place))->nla_len = batch.size - place;
}

static void value(uint16_t type, const void *bytes, size_t size)
{
    size_t nest = open_nest(type);
    attribute(NFTA_DATA_VALUE, bytes, size);
    close_nest(nest);
}

static void begin_expression(const char *name)
{
    batch.expression = open_nest(NFTA_LIST_ELEM);
    text(NFTA_EXPR_NAME, name);
    batch.expression_data = open_nest(NFTA_EXPR_DATA);
}

static void end_expression(void)
{
    close_nest(batch.expression_data);
    close_nest(batch.expression);
}

static void load_meta(uint32_t key)
{
    begin_expression("meta");
    number32(NFTA_META_DREG, NFT_REG_1);
    number32(NFTA_META_KEY, key);
    end_expression();
}

static void load_packet(uint32_t base, uint32_t offset, uint32_t size)
{
    begin_expression("payload");
    number32(NFTA_PAYLOAD_DREG, NFT_REG_1);
    number32(NFTA_PAYLOAD_BASE, base);
    number32(NFTA_PAYLOAD_OFFSET, offset);
    number32(NFTA_PAYLOAD_LEN, size);
    end_expression();
}

static void load_connection_state(void)
{
    begin_expression("ct");
    number32(NFTA_CT_DREG, NFT_REG_1);
    number32(NFTA_CT_KEY, NFT_CT_STATE);
    end_expression();
}

static void keep_bits(const void *mask, size_t size)
{
    const uint32_t none = 0;
    begin_expression("bitwise");
    number32(NFTA_BITWISE_SREG, NFT_REG_1);
    number32(NFTA_BITWISE_DREG, NFT_REG_1);
    number32(NFTA_BITWISE_LEN, size);
    value(NFTA_BITWISE_MASK, mask, size);
    value(NFTA_BITWISE_XOR, &none, size);
    end_expression();
}

/* The rule goes on only for a packet of which what was loaded compares so (NFT_CMP_EQ, NFT_CMP_NEQ). */
static void only_if(uint32_t how, const void *bytes, size_t size)
{
    begin_expression("cmp");
    number32(NFTA_CMP_SREG, NFT_REG_1);
    number32(NFTA_CMP_OP, how);
    value(NFTA_CMP_DATA, bytes, size);
    end_expression();
}

static void only_byte(uint32_t how, uint8_t byte)
{
    only_if(how, &byte, 1);
}

static void only_interface(uint32_t key)
{
    const uint32_t index = LOOPBACK;
    load_meta(key);
    only_if(NFT_CMP_EQ, &index, sizeof index);
}

static void only_to(struct network network)
{
    load_packet(NFT_PAYLOAD_NETWORK_HEADER, 16, 4);
    if (network.mask != ~0u)
        keep_bits(&network.mask, sizeof network.mask);
    only_if(NFT_CMP_EQ, &network.address, sizeof network.address);
}

static void only_state(uint32_t states)
{
    const uint32_t none = 0;
    load_connection_state();
    keep_bits(&states, sizeof states);
    only_if(NFT_CMP_NEQ, &none, sizeof none);
}

static size_t begin_rule(const char *chain)
{
    begin_message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_INET, 0);
    text(NFTA_RULE_TABLE, "gate");
    text(NFTA_RULE_CHAIN, chain);
    return open_nest(NFTA_RULE_EXPRESSIONS);
}

static void end_rule(size_t rule, uint32_t verdict)
{
    begin_expression("immediate");
    number32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = open_nest(NFTA_IMMEDIATE_DATA), code = open_nest(NFTA_DATA_VERDICT);
    number32(NFTA_VERDICT_CODE, verdict);
    close_nest(code);
    close_nest(data);
    end_expression();
    close_nest(rule);
    end_message();
}

static void make_chain(const char *name, uint32_t hook)
{
    begin_message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, NFPROTO_INET, 0);
    text(NFTA_CHAIN_TABLE, "gate");
    text(NFTA_CHAIN_NAME, name);
    size_t nest = open_nest(NFTA_CHAIN_HOOK);
    number32(NFTA_HOOK_HOOKNUM, hook);
    number32(NFTA_HOOK_PRIORITY, 0);
    close_nest(nest);
    number32(NFTA_CHAIN_POLICY, NF_DROP);
    text(NFTA_CHAIN_TYPE, "filter");
    end_message();
}

/* The kernel takes the whole batch or refuses it; every message of it is answered. */
static void send_batch(uint32_t answers)
{
    char answer[8192];
    const struct timeval patience = {.tv_sec = 5};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
        refuse("gate: netlink", strerror(errno));
    if (send(fd, batch.bytes, batch.size, 0) != (ssize_t)batch.size)
        refuse("gate: netlink", strerror(errno));
    while (answers > 0) {
        ssize_t left = recv(fd, answer, sizeof answer, 0);
        if (left < 0)
            refuse("gate: rules", strerror(errno));
        for (struct nlmsghdr *head = (struct nlmsghdr *)answer; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
            if (head->nlmsg_type != NLMSG_ERROR)
                continue;
            int error = ((struct nlmsgerr *)NLMSG_DATA(head))->error;
            if (error)
                refuse("gate: rules", strerror(-error));
            answers--;
        }
    }
    close(fd);
}
