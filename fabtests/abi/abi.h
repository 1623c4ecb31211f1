/* What the C ABI tests share: checks that say where they failed, and one endpoint with everything it needs. */
#ifndef SQUALL_ABI_H
#define SQUALL_ABI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* Threads check, too. */
static _Atomic int abi_checks;

#define FAIL(...)                                                                 \
	do {                                                                      \
		fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__);     \
		fprintf(stderr, __VA_ARGS__);                                     \
		fprintf(stderr, "\n");                                            \
		exit(1);                                                          \
	} while (0)

/* A condition that must hold. */
#define CHECK(cond)                                                               \
	do {                                                                      \
		abi_checks++;                                                     \
		if (!(cond))                                                      \
			FAIL("not true: %s", #cond);                              \
	} while (0)

/* Two integers that must be equal. */
#define EQUAL(a, b)                                                               \
	do {                                                                      \
		long long va = (long long)(a), vb = (long long)(b);               \
		abi_checks++;                                                     \
		if (va != vb)                                                     \
			FAIL("%s is %lld (%s), not %s = %lld", #a, va,            \
			     va < 0 ? fi_strerror((int)-va) : "", #b, vb);        \
	} while (0)

static inline double abi_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* How long an operation may take that must succeed: long under valgrind on a busy machine. */
#define PATIENCE 60.0

/* One endpoint, all its own. */
struct node {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct sockaddr_in name;
};

/* What a test wants other than the defaults. */
struct want {
	uint64_t caps;
	enum fi_threading threading;
	enum fi_progress progress;
	enum fi_wait_obj wait;
	uint64_t selective; /* FI_SELECTIVE_COMPLETION or 0 */
	uint64_t tx_op_flags;
	/* FI_ORDER_* of both directions; 0: the provider's own. */
	uint64_t order;
	int mr_mode;
	uint32_t version;
	/* Authorisation keys, as strings; NULL: none. */
	const char *domain_key, *ep_key;
	/* The endpoint's own IPv4 address; NULL stands for loopback. */
	const char *source;
	/* Name of the provider; NULL stands for squall. */
	const char *provider;
};

static inline struct fi_info *abi_info(const struct want *want)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	CHECK(hints != NULL);
	hints->caps = want->caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = want->threading;
	hints->domain_attr->data_progress = want->progress;
	hints->domain_attr->mr_mode = want->mr_mode;
	hints->tx_attr->op_flags = want->tx_op_flags;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = want->order;
	hints->fabric_attr->prov_name = strdup(want->provider ? want->provider : "squall");
	if (want->domain_key) {
		hints->domain_attr->auth_key = (uint8_t *)strdup(want->domain_key);
		hints->domain_attr->auth_key_size = strlen(want->domain_key);
	}
	if (want->ep_key) {
		hints->ep_attr->auth_key = (uint8_t *)strdup(want->ep_key);
		hints->ep_attr->auth_key_size = strlen(want->ep_key);
	}
	uint32_t version = want->version ? want->version : FI_VERSION(1, 17);
	const char *source = want->source ? want->source : "127.0.0.1";
	EQUAL(fi_getinfo(version, source, NULL, FI_SOURCE, hints, &info), 0);
	CHECK(info != NULL && info->src_addr != NULL);
	fi_freeinfo(hints);
	return info;
}

static inline void abi_open(struct node *n, const struct want *want)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = want->wait};
	memset(n, 0, sizeof(*n));
	n->info = abi_info(want);
	EQUAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EQUAL(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EQUAL(fi_av_open(n->domain, &av_attr, &n->av, NULL), 0);
	EQUAL(fi_cq_open(n->domain, &cq_attr, &n->cq, NULL), 0);
	EQUAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV | want->selective), 0);
	EQUAL(fi_enable(n->ep), 0);
	size_t len = sizeof(n->name);
	EQUAL(fi_getname(&n->ep->fid, &n->name, &len), 0);
	EQUAL(len, sizeof(n->name));
}

static inline void abi_close(struct node *n)
{
	EQUAL(fi_close(&n->ep->fid), 0);
	EQUAL(fi_close(&n->cq->fid), 0);
	EQUAL(fi_close(&n->av->fid), 0);
	EQUAL(fi_close(&n->domain->fid), 0);
	EQUAL(fi_close(&n->fabric->fid), 0);
	fi_freeinfo(n->info);
}

static inline fi_addr_t abi_insert(struct node *n, const struct sockaddr_in *name)
{
	fi_addr_t addr = FI_ADDR_UNSPEC;
	EQUAL(fi_av_insert(n->av, name, 1, &addr, 0, NULL), 1);
	return addr;
}

/* Waits for one completion of `n` while driving `other` too (NULL: nobody). 1, or -FI_EAVAIL. */
static inline ssize_t abi_next(struct node *n, struct node *other, struct fi_cq_tagged_entry *entry)
{
	double end = abi_now() + PATIENCE;
	for (;;) {
		ssize_t rc = fi_cq_read(n->cq, entry, 1);
		if (rc != -FI_EAGAIN)
			return rc;
		if (other)
			(void)fi_cq_read(other->cq, NULL, 0);
		if (abi_now() > end)
			FAIL("no completion within %.0f s", PATIENCE);
	}
}

static inline void abi_expect(struct node *n, struct node *other, struct fi_cq_tagged_entry *entry)
{
	ssize_t rc = abi_next(n, other, entry);
	if (rc == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		fi_cq_readerr(n->cq, &err, 0);
		FAIL("an operation failed: %s (%s)", fi_strerror(err.err),
		     fi_cq_strerror(n->cq, err.prov_errno, err.err_data, NULL, 0));
	}
	EQUAL(rc, 1);
}

static inline void abi_expect_error(struct node *n, struct node *other, struct fi_cq_err_entry *err)
{
	struct fi_cq_tagged_entry entry;
	EQUAL(abi_next(n, other, &entry), -FI_EAVAIL);
	memset(err, 0, sizeof(*err));
	EQUAL(fi_cq_readerr(n->cq, err, 0), 1);
}

/* Retries while the provider says try again. */
#define RETRY(n, call)                                                            \
	do {                                                                      \
		ssize_t rc_;                                                      \
		while ((rc_ = (call)) == -FI_EAGAIN)                              \
			(void)fi_cq_read((n)->cq, NULL, 0);                       \
		EQUAL(rc_, 0);                                                    \
	} while (0)

/* Content that depends on position and message. */
static inline void abi_fill(unsigned char *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed * 131);
}

static inline void abi_verify(const unsigned char *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != (unsigned char)(i * 31 + (i >> 8) * 7 + seed * 131))
			FAIL("byte %zu of %zu is wrong", i, len);
	abi_checks++;
}

#define RUN(test)                                                                 \
	do {                                                                      \
		double start_ = abi_now();                                        \
		test();                                                           \
		printf("ok %-28s %.2f s\n", #test, abi_now() - start_);           \
		fflush(stdout);                                                   \
	} while (0)

#endif
