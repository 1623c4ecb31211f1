/*
 * Round trips of single messages between two processes, in nanoseconds of their own clock.
 *
 *   round_trip SIZE ROUNDS [peek|late]
 *
 * The program is for virtual time, in which each call has a known price. So a round consists of as few calls as possible:
 * rank 0 reads the clock, injects a message, reads its completion queue until the answer is there, and reads the clock again.
 * Rank 1 answers. Receives are posted before the first round, and injected messages have no completion. Between rounds both
 * processes sleep, so that acknowledgements of a round do not reach the next one.
 *
 * With `peek` no receives are posted. The processes look for messages with FI_PEEK, as MPI_Iprobe does, and discard them.
 * After a peek they read its completion and nothing else, so that only the peek can make progress. With `late` they receive the
 * message after the peek has found it, instead of discarding it.
 *
 * PMI_RANK names the process, as a launcher does. In virtual time the port of an endpoint follows from its rank, so that the
 * two need not exchange addresses. Rank 0 prints one line `SIZE NANOSECONDS` for each round.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
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

enum { MOST_ROUNDS = 1000, PAUSE_NS = 20000, PORTS_OF_A_RANK = 8 };

static void check(const char *what, ssize_t code)
{
	if (code < 0) {
		fprintf(stderr, "round_trip: %s: %s\n", what, fi_strerror((int)-code));
		exit(1);
	}
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_until(int64_t at)
{
	struct timespec t = {at / 1000000000, at % 1000000000};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void read_message(struct fid_cq *cq)
{
	struct fi_cq_entry entry;
	ssize_t n;

	while ((n = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		;
	check("fi_cq_read", n);
}

static void peek_message(struct fid_ep *ep, struct fid_cq *cq, struct fi_context2 *context, uint64_t flags)
{
	struct fi_msg_tagged message = {.addr = FI_ADDR_UNSPEC, .tag = 1, .context = context};
	struct fi_cq_err_entry failure = {.err = FI_ENOMSG};
	struct fi_cq_entry entry;

	while (failure.err == FI_ENOMSG) {
		check("fi_trecvmsg", fi_trecvmsg(ep, &message, FI_PEEK | flags));
		ssize_t n = fi_cq_read(cq, &entry, 1);
		if (n == 1)
			return;
		if (n != -FI_EAVAIL)
			check("fi_cq_read", n);
		check("fi_cq_readerr", fi_cq_readerr(cq, &failure, 0));
	}
	check("FI_PEEK", -failure.err);
}

/* How a process finds a message: a receive is posted, or it peeks and discards, or it peeks and receives. */
enum how { POSTED, PEEK, LATE };

static void wait_for_message(struct fid_ep *ep, struct fid_cq *cq, enum how how, void *buffer, size_t size, struct fi_context2 *context)
{
	if (how != POSTED)
		peek_message(ep, cq, context, how == PEEK ? FI_DISCARD : 0);
	if (how == LATE)
		check("fi_trecv", fi_trecv(ep, buffer, size, NULL, FI_ADDR_UNSPEC, 1, 0, context));
	if (how != PEEK)
		read_message(cq);
}

int main(int argc, char **argv)
{
	const char *name = getenv("PMI_RANK");
	int rank = name ? atoi(name) : -1;
	const char *word = argc == 4 ? argv[3] : "";
	enum how how = !strcmp(word, "peek") ? PEEK : !strcmp(word, "late") ? LATE : POSTED;
	size_t size = argc >= 3 ? strtoul(argv[1], NULL, 10) : 0;
	int rounds = argc == 3 || how != POSTED ? atoi(argv[2]) : 0;

	if (rank < 0 || rank > 1 || rounds < 1 || rounds > MOST_ROUNDS) {
		fprintf(stderr, "usage: PMI_RANK=0|1 round_trip SIZE ROUNDS [peek|late], at most %d rounds\n", MOST_ROUNDS);
		return 2;
	}
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("squall");
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));

	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 1};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
	/* Sends complete by an entry in the queue only if they ask for it, and injected ones never. */
	check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(ep));

	struct sockaddr_in addr;
	size_t length = sizeof addr;
	fi_addr_t peer;
	check("fi_getname", fi_getname(&ep->fid, &addr, &length));
	uint16_t port = ntohs(addr.sin_port);
	addr.sin_port = htons((uint16_t)(rank ? port - PORTS_OF_A_RANK : port + PORTS_OF_A_RANK));
	/* The instance of the peer is not known. */
	memset(addr.sin_zero, 0, sizeof addr.sin_zero);
	if (fi_av_insert(av, &addr, 1, &peer, 0, NULL) != 1)
		check("fi_av_insert", -FI_EADDRNOTAVAIL);

	char *buffer = calloc(2, size + 1);
	struct fi_context2 *contexts = calloc(MOST_ROUNDS + 1, sizeof *contexts);
	if (!buffer || !contexts)
		check("calloc", -FI_ENOMEM);
	/* The round before the first introduces the two to each other. */
	for (int i = 0; i <= rounds && how == POSTED; i++)
		check("fi_trecv", fi_trecv(ep, buffer + size, size, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[i]));
	for (int i = 0; i <= rounds; i++) {
		if (rank == 0) {
			int64_t begin = now();
			check("fi_tinject", fi_tinject(ep, buffer, size, peer, 1));
			wait_for_message(ep, cq, how, buffer + size, size, &contexts[i]);
			int64_t end = now();
			if (i > 0)
				printf("%zu %lld\n", size, (long long)(end - begin));
			sleep_until(end + PAUSE_NS);
		} else {
			wait_for_message(ep, cq, how, buffer + size, size, &contexts[i]);
			check("fi_tinject", fi_tinject(ep, buffer, size, peer, 1));
		}
	}
	/* Closing the endpoint waits for the acknowledgement of its last message. */
	check("fi_close", fi_close(&ep->fid));
	return 0;
}
