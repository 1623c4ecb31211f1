/* Groups of endpoints of a process that carry out collective operations (fi_collective(3)). */
#ifndef SQUALL_GROUP_H
#define SQUALL_GROUP_H

#include "own_process.h"

#include <rdma/fi_collective.h>

#define MOST 5

/* A member: an endpoint with a queue of events, that knows all others. */
struct member {
	struct node n;
	struct fid_eq *eq;
	struct fid_av_set *set;
	struct fid_mc *mc;
	fi_addr_t group;
};

static struct member members[MOST];
static int many;

static inline void group_open(struct member *m, const struct want *want)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct node *n = &m->n;
	memset(m, 0, sizeof(*m));
	n->info = abi_info(want);
	CHECK(n->info->caps & FI_COLLECTIVE);
	EQUAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EQUAL(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EQUAL(fi_eq_open(n->fabric, &eq_attr, &m->eq, NULL), 0);
	EQUAL(fi_av_open(n->domain, &av_attr, &n->av, NULL), 0);
	EQUAL(fi_cq_open(n->domain, &cq_attr, &n->cq, NULL), 0);
	EQUAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EQUAL(fi_ep_bind(n->ep, &m->eq->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV | want->selective), 0);
	EQUAL(fi_enable(n->ep), 0);
	size_t len = sizeof(n->name);
	EQUAL(fi_getname(&n->ep->fid, &n->name, &len), 0);
}

static inline void group_progress(void)
{
	for (int i = 0; i < many; i++)
		(void)fi_cq_read(members[i].n.cq, NULL, 0);
}

static inline void group_joined(struct member *m, void *context)
{
	struct fi_eq_entry entry;
	uint32_t event;
	double end = abi_now() + PATIENCE;
	ssize_t rc;
	while ((rc = fi_eq_read(m->eq, &event, &entry, sizeof(entry), 0)) == -FI_EAGAIN) {
		group_progress();
		if (abi_now() > end)
			FAIL("not joined within %.0f s", PATIENCE);
	}
	EQUAL(rc, sizeof(entry));
	EQUAL(event, FI_JOIN_COMPLETE);
	CHECK(entry.fid == &m->mc->fid && entry.context == context);
	m->group = fi_mc_addr(m->mc);
}

/* Everybody asks to join. */
static inline void group_ask(void)
{
	struct fi_av_set_attr attr = {.start_addr = 0, .end_addr = (fi_addr_t)many - 1, .stride = 1};
	for (int i = 0; i < many; i++) {
		struct member *m = &members[i];
		fi_addr_t addr;
		EQUAL(fi_av_set(m->n.av, &attr, &m->set, NULL), 0);
		EQUAL(fi_av_set_addr(m->set, &addr), 0);
		EQUAL(fi_join_collective(m->n.ep, addr, m->set, 0, &m->mc, &contexts[i]), 0);
	}
}

static inline void group_join(void)
{
	group_ask();
	for (int i = 0; i < many; i++)
		group_joined(&members[i], &contexts[i]);
}

/* Endpoints that know each other. */
static inline void group_meet(int n, const struct want *want)
{
	many = n;
	for (int i = 0; i < n; i++)
		group_open(&members[i], want);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			EQUAL(abi_insert(&members[i].n, &members[j].n.name), j);
}

static inline void group_begin(int n, const struct want *want)
{
	group_meet(n, want);
	group_join();
}

static inline void group_leave(void)
{
	for (int i = 0; i < many; i++) {
		EQUAL(fi_close(&members[i].mc->fid), 0);
		EQUAL(fi_close(&members[i].set->fid), 0);
	}
}

static inline void group_end(void)
{
	for (int i = 0; i < many; i++) {
		struct node *n = &members[i].n;
		EQUAL(fi_close(&n->ep->fid), 0);
		EQUAL(fi_close(&n->cq->fid), 0);
		EQUAL(fi_close(&n->av->fid), 0);
		EQUAL(fi_close(&members[i].eq->fid), 0);
		EQUAL(fi_close(&n->domain->fid), 0);
		EQUAL(fi_close(&n->fabric->fid), 0);
		fi_freeinfo(n->info);
	}
}

/* The end of one operation of a member; 1, or -FI_EAVAIL. */
static inline ssize_t group_next(struct member *m, struct fi_cq_tagged_entry *e)
{
	double limit = abi_now() + PATIENCE;
	ssize_t rc;
	while ((rc = fi_cq_read(m->n.cq, e, 1)) == -FI_EAGAIN) {
		group_progress();
		if (abi_now() > limit)
			FAIL("no completion within %.0f s", PATIENCE);
	}
	return rc;
}

static inline void group_done(void *context)
{
	struct fi_cq_tagged_entry e;
	for (int i = 0; i < many; i++) {
		if (group_next(&members[i], &e) != 1) {
			struct fi_cq_err_entry err = {0};
			fi_cq_readerr(members[i].n.cq, &err, 0);
			FAIL("member %d of %d: %s", i, many, fi_strerror(err.err));
		}
		CHECK(e.op_context == context && e.flags & FI_COLLECTIVE);
	}
}

#endif
