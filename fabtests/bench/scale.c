/*
 * What it costs to begin, and to know many peers.
 *
 *   scale PROVIDER ADDRESSES ROUNDS
 *
 * Prints, medians of ROUNDS: milliseconds from the first fi_getinfo to an endpoint that is enabled, in this process and over
 * the loopback interface; milliseconds to insert ADDRESSES addresses by one call of fi_av_insert, and one by one.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

enum { MOST = 64 };

struct times {
	double start[MOST], together[MOST], singly[MOST];
};

static void check(const char *what, ssize_t code)
{
	if (code < 0) {
		fprintf(stderr, "scale: %s: %s\n", what, fi_strerror((int)-code));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof *values, compare);
	return values[count / 2];
}

/* As many addresses of this host as asked for: 127.1.0.0 and on, port 4793. */
static void fill(struct sockaddr_in *addresses, int count)
{
	for (int i = 0; i < count; i++) {
		memset(&addresses[i], 0, sizeof addresses[i]);
		addresses[i].sin_family = AF_INET;
		addresses[i].sin_port = htons(4793);
		addresses[i].sin_addr.s_addr = htonl(0x7f010000u + (unsigned)i);
	}
}

static void once(const char *provider, struct sockaddr_in *addresses, fi_addr_t *found, int count, struct times *times, int round)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = 64};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = (size_t)count};
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av, *other;
	double begin = now();

	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(provider);
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(ep));
	times->start[round] = now() - begin;

	begin = now();
	if (fi_av_insert(av, addresses, (size_t)count, found, 0, NULL) != count)
		check("fi_av_insert", -FI_EINVAL);
	times->together[round] = now() - begin;

	check("fi_av_open", fi_av_open(domain, &av_attr, &other, NULL));
	begin = now();
	for (int i = 0; i < count; i++)
		if (fi_av_insert(other, &addresses[i], 1, &found[i], 0, NULL) != 1)
			check("fi_av_insert", -FI_EINVAL);
	times->singly[round] = now() - begin;

	check("fi_close", fi_close(&ep->fid));
	check("fi_close", fi_close(&other->fid));
	check("fi_close", fi_close(&av->fid));
	check("fi_close", fi_close(&cq->fid));
	check("fi_close", fi_close(&domain->fid));
	check("fi_close", fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

int main(int argc, char **argv)
{
	static struct times times;
	struct sockaddr_in *addresses;
	fi_addr_t *found;
	int count, rounds;

	if (argc != 4 || (count = atoi(argv[2])) < 1 || (rounds = atoi(argv[3])) < 1 || rounds > MOST) {
		fprintf(stderr, "usage: scale PROVIDER ADDRESSES ROUNDS (see the head of its source)\n");
		return 2;
	}
	addresses = calloc((size_t)count, sizeof *addresses);
	found = calloc((size_t)count, sizeof *found);
	if (!addresses || !found)
		check("calloc", -FI_ENOMEM);
	fill(addresses, count);
	for (int i = 0; i < rounds; i++)
		once(argv[1], addresses, found, count, &times, i);
	printf("start %.3f\n", median(times.start, rounds));
	printf("together %.3f\n", median(times.together, rounds));
	printf("singly %.3f\n", median(times.singly, rounds));
	return 0;
}
