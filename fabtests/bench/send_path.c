/*
 * Tagged sends to a peer that has answered, for an instruction counter that collects inside of some calls alone.
 *
 *   send_path PROVIDER tsend|tinject|sender|receiver|poll ROUNDS [SIZE [PIECES]]
 *
 * Both sides live in this process, each with its own domain, over the loopback interface. After a warm-up of messages
 * both ways, each round sends SIZE bytes (64), in PIECES (1) of an iovec, and waits until they have arrived, were
 * acknowledged, and nothing is under way. Under `valgrind --tool=callgrind --collect-atstart=no` only calls of the rounds are collected: fi_tsend or
 * fi_tinject itself, or every call of the sender, or of the receiver, from fi_tsend until the message has arrived and
 * its sender knows. `poll` collects reads of an empty completion queue instead.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <valgrind/callgrind.h>

enum { SMALL = 64, MOST = 16 << 20, MOST_PIECES = 4, WARM_UP = 50, QUIET = 50, PATIENCE = 60 };
/* Whose calls are collected. */
enum what { THE_CALL, SENDER, RECEIVER };

struct side {
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
	char name[256];
	uint64_t sent, received;
};

static struct side sides[2];
/* Contexts of operations under way; a round has two at most. */
static struct fi_context2 contexts[4];
static char *payload, *landing[2];
static size_t size = SMALL, pieces = 1;

static void check(const char *what, ssize_t code)
{
	if (code < 0) {
		fprintf(stderr, "send_path: %s: %s\n", what, fi_strerror((int)-code));
		exit(1);
	}
}

static void open_side(struct side *side, struct fid_fabric *fabric, struct fi_info *info)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = 64};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
	size_t length = sizeof side->name;

	check("fi_domain", fi_domain(fabric, info, &side->domain, NULL));
	check("fi_cq_open", fi_cq_open(side->domain, &cq_attr, &side->cq, NULL));
	check("fi_av_open", fi_av_open(side->domain, &av_attr, &side->av, NULL));
	check("fi_endpoint", fi_endpoint(side->domain, info, &side->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(side->ep, &side->av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(side->ep));
	check("fi_getname", fi_getname(&side->ep->fid, side->name, &length));
}

/* `counted`: the calls of this side are collected, of none when negative. */
static void progress(int counted)
{
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry entry;
		ssize_t n;

		if (i == counted)
			CALLGRIND_TOGGLE_COLLECT;
		n = fi_cq_read(sides[i].cq, &entry, 1);
		if (i == counted)
			CALLGRIND_TOGGLE_COLLECT;
		if (n == -FI_EAGAIN)
			continue;
		check("fi_cq_read", n);
		if (entry.flags & FI_RECV)
			sides[i].received++;
		else
			sides[i].sent++;
	}
}

/* fi_tsend, or fi_tsendv of pieces that are as long as each other but for the last. */
static ssize_t send_pieces(struct side *from, void *context)
{
	struct iovec iov[MOST_PIECES];
	size_t each = size / pieces;

	if (pieces == 1)
		return fi_tsend(from->ep, payload, size, NULL, from->peer, 1, context);
	for (size_t i = 0; i < pieces; i++) {
		iov[i].iov_base = payload + i * each;
		iov[i].iov_len = i + 1 < pieces ? each : size - i * each;
	}
	return fi_tsendv(from->ep, iov, NULL, pieces, from->peer, 1, context);
}

/* One message from a side to the other; `what` is collected of it when `counted`. */
static void message(int from, int injected, enum what what, int counted)
{
	int calls = !counted || what == THE_CALL ? -1 : what == SENDER ? from : !from;
	int send = counted && what != RECEIVER;
	struct side *a = &sides[from], *b = &sides[!from];
	uint64_t sent = a->sent + !injected, received = b->received + 1;
	time_t begin = time(NULL);
	ssize_t code;

	check("fi_trecv", fi_trecv(b->ep, landing[!from], size, NULL, b->peer, 1, 0, &contexts[2 + !from]));
	if (send)
		CALLGRIND_TOGGLE_COLLECT;
	if (injected)
		code = fi_tinject(a->ep, payload, size, a->peer, 1);
	else
		code = send_pieces(a, &contexts[from]);
	if (send)
		CALLGRIND_TOGGLE_COLLECT;
	check("send", code);
	while (a->sent < sent || b->received < received) {
		progress(calls);
		if (time(NULL) > begin + PATIENCE) {
			fprintf(stderr, "send_path: no progress\n");
			exit(1);
		}
	}
	/* Acknowledgements come home. */
	for (int i = 0; i < QUIET; i++)
		progress(-1);
	if (memcmp(landing[!from], payload, size)) {
		fprintf(stderr, "send_path: the message arrived wrong\n");
		exit(1);
	}
	memset(landing[!from], 0, size);
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	static const char *const names[] = {"tsend", "tinject", "sender", "receiver", "poll"};
	enum { POLL = 4 };
	int kind = 0, injected, rounds = argc < 4 ? 0 : atoi(argv[3]);
	enum what what;

	while (argc >= 4 && kind <= POLL && strcmp(argv[2], names[kind]))
		kind++;
	if (argc > 4)
		size = strtoul(argv[4], NULL, 10);
	if (argc > 5)
		pieces = strtoul(argv[5], NULL, 10);
	if (argc < 4 || argc > 6 || kind > POLL || rounds < 1 || size < 1 || size > MOST || pieces < 1 || pieces > MOST_PIECES) {
		fprintf(stderr, "usage: send_path PROVIDER tsend|tinject|sender|receiver|poll ROUNDS [SIZE [PIECES]] (see the head of its source)\n");
		return 2;
	}
	injected = kind == 1;
	what = kind < 2 ? THE_CALL : kind == 2 ? SENDER : RECEIVER;
	payload = malloc(size);
	for (int i = 0; i < 2; i++)
		landing[i] = calloc(1, size);
	if (!payload || !landing[0] || !landing[1])
		check("malloc", -FI_ENOMEM);
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(argv[1]);
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	fi_freeinfo(hints);
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	for (int i = 0; i < 2; i++)
		open_side(&sides[i], fabric, info);
	for (int i = 0; i < 2; i++)
		if (fi_av_insert(sides[i].av, sides[!i].name, 1, &sides[i].peer, 0, NULL) != 1)
			check("fi_av_insert", -FI_EADDRNOTAVAIL);
	for (size_t i = 0; i < size; i++)
		payload[i] = (char)(i + 1);
	for (int i = 0; i < WARM_UP; i++) {
		message(0, injected, what, 0);
		message(1, injected, what, 0);
	}
	for (int i = 0; i < rounds; i++) {
		if (kind == POLL)
			progress(0);
		else
			message(0, injected, what, 1);
	}
	printf("%d messages of %zu bytes\n", rounds, size);
	for (int i = 0; i < 2; i++) {
		check("fi_close", fi_close(&sides[i].ep->fid));
		check("fi_close", fi_close(&sides[i].cq->fid));
		check("fi_close", fi_close(&sides[i].av->fid));
		check("fi_close", fi_close(&sides[i].domain->fid));
	}
	check("fi_close", fi_close(&fabric->fid));
	fi_freeinfo(info);
	return 0;
}
