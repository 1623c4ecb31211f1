/*
 * Small tagged sends to a peer that has answered, for an instruction counter that collects inside of the calls alone.
 *
 *   send_path PROVIDER tsend|tinject ROUNDS
 *
 * Both sides live in this process, each with its own domain, over the loopback interface. After a warm-up of messages
 * both ways, each round sends 64 bytes and waits until they have arrived, were acknowledged, and nothing is under way. Under
 * `valgrind --tool=callgrind --collect-atstart=no` only the calls of the rounds are collected.
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

enum { SIZE = 64, WARM_UP = 50, QUIET = 50, PATIENCE = 60 };

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
static char payload[SIZE], landing[2][SIZE];

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

static void progress(void)
{
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry entry;
		ssize_t n = fi_cq_read(sides[i].cq, &entry, 1);

		if (n == -FI_EAGAIN)
			continue;
		check("fi_cq_read", n);
		if (entry.flags & FI_RECV)
			sides[i].received++;
		else
			sides[i].sent++;
	}
}

/* One message from a side to the other; collected when `counted`. */
static void message(int from, int injected, int counted)
{
	struct side *a = &sides[from], *b = &sides[!from];
	uint64_t sent = a->sent + !injected, received = b->received + 1;
	time_t begin = time(NULL);
	ssize_t code;

	check("fi_trecv", fi_trecv(b->ep, landing[!from], SIZE, NULL, b->peer, 1, 0, &contexts[2 + !from]));
	if (counted)
		CALLGRIND_TOGGLE_COLLECT;
	if (injected)
		code = fi_tinject(a->ep, payload, SIZE, a->peer, 1);
	else
		code = fi_tsend(a->ep, payload, SIZE, NULL, a->peer, 1, &contexts[from]);
	if (counted)
		CALLGRIND_TOGGLE_COLLECT;
	check("send", code);
	while (a->sent < sent || b->received < received) {
		progress();
		if (time(NULL) > begin + PATIENCE) {
			fprintf(stderr, "send_path: no progress\n");
			exit(1);
		}
	}
	/* Acknowledgements come home. */
	for (int i = 0; i < QUIET; i++)
		progress();
	if (memcmp(landing[!from], payload, SIZE)) {
		fprintf(stderr, "send_path: the message arrived wrong\n");
		exit(1);
	}
	memset(landing, 0, sizeof landing);
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	int injected, rounds;

	if (argc != 4 || (rounds = atoi(argv[3])) < 1 || (strcmp(argv[2], "tsend") && strcmp(argv[2], "tinject"))) {
		fprintf(stderr, "usage: send_path PROVIDER tsend|tinject ROUNDS (see the head of its source)\n");
		return 2;
	}
	injected = !strcmp(argv[2], "tinject");
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
	for (int i = 0; i < SIZE; i++)
		payload[i] = (char)(i + 1);
	for (int i = 0; i < WARM_UP; i++) {
		message(0, injected, 0);
		message(1, injected, 0);
	}
	for (int i = 0; i < rounds; i++)
		message(0, injected, 1);
	printf("%d messages of %d bytes\n", rounds, SIZE);
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
