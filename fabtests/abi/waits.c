/* Waiting: every kind of wait object on every kind of queue, wait sets, poll sets, and what wakes whom. */
#include "abi.h"

#include <poll.h>
#include <rdma/fi_eq.h>

/* How long a wait may last that must end: one that does not is stuck. */
#define PATIENCE_MS ((int)(PATIENCE * 1000))

static const char *const name_of[] = {"NONE", "UNSPEC", "SET", "FD", "MUTEX_COND", "YIELD", "POLLFD"};

/* What is being waited for. */
struct waited {
	struct fid_fabric *fabric;
	struct fid *fid;
	enum fi_wait_obj obj;
};

/* Blocks on the object itself, once, as an application does with its own calls. */
static void block(const struct waited *w)
{
	struct fid *fids[1] = {w->fid};
	int fd = -1;
	struct fi_mutex_cond native = {0};
	struct pollfd polled = {.fd = -1}, none = {.fd = -1};
	struct fi_wait_pollfd array = {.nfds = 0, .fd = &none};
	switch (w->obj) {
	case FI_WAIT_FD:
		EQUAL(fi_control(w->fid, FI_GETWAIT, &fd), 0);
		polled = (struct pollfd){.fd = fd, .events = POLLIN};
		if (fi_trywait(w->fabric, fids, 1) == 0)
			EQUAL(poll(&polled, 1, PATIENCE_MS), 1);
		return;
	case FI_WAIT_POLLFD:
		/* Too little room says how much there must be. */
		EQUAL(fi_control(w->fid, FI_GETWAIT, &array), -FI_ETOOSMALL);
		EQUAL(array.nfds, 1);
		array.fd = &polled;
		EQUAL(fi_control(w->fid, FI_GETWAIT, &array), 0);
		if (fi_trywait(w->fabric, fids, 1) == 0)
			EQUAL(poll(&polled, 1, PATIENCE_MS), 1);
		return;
	case FI_WAIT_MUTEX_COND:
		EQUAL(fi_control(w->fid, FI_GETWAIT, &native), 0);
		CHECK(native.mutex && native.cond);
		struct timespec end;
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += (time_t)PATIENCE;
		EQUAL(pthread_mutex_lock(native.mutex), 0);
		if (fi_trywait(w->fabric, fids, 1) == 0)
			EQUAL(pthread_cond_timedwait(native.cond, native.mutex, &end), 0);
		EQUAL(pthread_mutex_unlock(native.mutex), 0);
		return;
	default:
		/* Nothing to block on: only whether there would be a reason. */
		(void)fi_trywait(w->fabric, fids, 1);
		EQUAL(fi_control(w->fid, FI_GETWAIT, &fd), -FI_ENODATA);
	}
}

/* Whether the answer to FI_GETWAITOBJ is what was asked for. */
static void says(struct fid *fid, enum fi_wait_obj obj)
{
	enum fi_wait_obj have = FI_WAIT_NONE;
	EQUAL(fi_control(fid, FI_GETWAITOBJ, &have), 0);
	EQUAL(have, obj);
}

/* Two endpoints, one of which sends to the other when it is told to. */
struct pair {
	struct node near, far;
	fi_addr_t to_near, to_far;
	char buf[64];
	struct fid_cntr *cntr;
};

static void open_pair(struct pair *p, const struct want *want)
{
	struct want other = {.caps = want->caps};
	memset(p, 0, sizeof(*p));
	abi_open(&p->near, want);
	abi_open(&p->far, &other);
	p->to_near = abi_insert(&p->far, &p->near.name);
	p->to_far = abi_insert(&p->near, &p->far.name);
}

static void close_pair(struct pair *p)
{
	abi_close(&p->near);
	abi_close(&p->far);
}

/* Sends one message after a while, and sees to it that it leaves and arrives. */
static void *send_later(void *arg)
{
	struct pair *p = arg;
	struct fi_cq_tagged_entry entry;
	usleep(50 * 1000);
	RETRY(&p->far, fi_send(p->far.ep, p->buf, 8, NULL, p->to_near, NULL));
	abi_expect(&p->far, NULL, &entry);
	return NULL;
}

static const enum fi_wait_obj kinds[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void completion_queues(void)
{
	for (int k = 0; k < KINDS; k++)
		for (int automatic = 0; automatic < 2; automatic++) {
			struct want want = {.caps = FI_MSG,
					    .wait = kinds[k],
					    .threading = FI_THREAD_SAFE,
					    .progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL};
			struct pair p;
			struct fi_cq_tagged_entry entry;
			open_pair(&p, &want);
			struct waited w = {p.near.fabric, &p.near.cq->fid, kinds[k]};
			says(w.fid, kinds[k]);
			char in[64];
			/* By the application's own calls, and by ours. */
			for (int ours = 0; ours < 2; ours++) {
				pthread_t thread;
				EQUAL(fi_recv(p.near.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
				EQUAL(pthread_create(&thread, NULL, send_later, &p), 0);
				ssize_t rc;
				double end = abi_now() + PATIENCE;
				do {
					if (abi_now() > end)
						FAIL("%s: stuck", name_of[kinds[k]]);
					if (!ours)
						block(&w);
					rc = ours ? fi_cq_sread(p.near.cq, &entry, 1, NULL, PATIENCE_MS)
						  : fi_cq_read(p.near.cq, &entry, 1);
				} while (rc == -FI_EAGAIN);
				EQUAL(rc, 1);
				EQUAL(pthread_join(thread, NULL), 0);
			}
			/* Nothing comes; a signal does. */
			double start = abi_now();
			EQUAL(fi_cq_sread(p.near.cq, &entry, 1, NULL, 30), -FI_EAGAIN);
			CHECK(abi_now() - start >= 0.028);
			EQUAL(fi_cq_signal(p.near.cq), 0);
			EQUAL(fi_cq_sread(p.near.cq, &entry, 1, NULL, PATIENCE_MS), -FI_EAGAIN);
			close_pair(&p);
		}
}

static void counters(void)
{
	for (int k = 0; k < KINDS; k++) {
		struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE};
		struct pair p;
		open_pair(&p, &want);
		struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = kinds[k]};
		struct fid_cntr *cntr;
		EQUAL(fi_cntr_open(p.near.domain, &attr, &cntr, NULL), 0);
		EQUAL(fi_ep_bind(p.near.ep, &cntr->fid, FI_RECV), 0);
		struct waited w = {p.near.fabric, &cntr->fid, kinds[k]};
		says(w.fid, kinds[k]);
		char in[64];
		for (uint64_t n = 1; n <= 2; n++) {
			pthread_t thread;
			EQUAL(fi_recv(p.near.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
			EQUAL(pthread_create(&thread, NULL, send_later, &p), 0);
			double end = abi_now() + PATIENCE;
			while (n == 1 && fi_cntr_read(cntr) < n) {
				if (abi_now() > end)
					FAIL("%s: stuck", name_of[kinds[k]]);
				block(&w);
			}
			EQUAL(fi_cntr_wait(cntr, n, PATIENCE_MS), 0);
			EQUAL(pthread_join(thread, NULL), 0);
		}
		EQUAL(fi_cntr_wait(cntr, 3, 30), -FI_ETIMEDOUT);
		EQUAL(fi_close(&p.near.ep->fid), 0);
		EQUAL(fi_close(&cntr->fid), 0);
		EQUAL(fi_endpoint(p.near.domain, p.near.info, &p.near.ep, NULL), 0);
		close_pair(&p);
	}
}

static void *write_later(void *arg)
{
	struct fi_eq_entry entry = {.data = 7};
	usleep(30 * 1000);
	EQUAL(fi_eq_write(arg, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
	return NULL;
}

static void event_queues(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	for (int k = 0; k < KINDS; k++) {
		struct fi_eq_attr attr = {.flags = FI_WRITE, .wait_obj = kinds[k]};
		struct fid_eq *eq;
		EQUAL(fi_eq_open(n.fabric, &attr, &eq, NULL), 0);
		struct waited w = {n.fabric, &eq->fid, kinds[k]};
		says(w.fid, kinds[k]);
		for (int ours = 0; ours < 2; ours++) {
			pthread_t thread;
			struct fi_eq_entry entry;
			uint32_t event;
			ssize_t rc;
			EQUAL(pthread_create(&thread, NULL, write_later, eq), 0);
			double end = abi_now() + PATIENCE;
			do {
				if (abi_now() > end)
					FAIL("%s: stuck", name_of[kinds[k]]);
				if (!ours)
					block(&w);
				rc = ours ? fi_eq_sread(eq, &event, &entry, sizeof(entry), PATIENCE_MS, 0)
					  : fi_eq_read(eq, &event, &entry, sizeof(entry), 0);
			} while (rc == -FI_EAGAIN);
			EQUAL(rc, sizeof(entry));
			EQUAL(pthread_join(thread, NULL), 0);
		}
		EQUAL(fi_eq_sread(eq, NULL, NULL, 0, 0, 0), -FI_EINVAL);
		EQUAL(fi_close(&eq->fid), 0);
	}
	abi_close(&n);
}

/* A mutex that the application forgot to give back does not make closing hang. */
static void a_held_mutex_and_close(void)
{
	struct want want = {.caps = FI_MSG, .wait = FI_WAIT_MUTEX_COND};
	struct node n;
	abi_open(&n, &want);
	struct fi_mutex_cond native;
	EQUAL(fi_control(&n.cq->fid, FI_GETWAIT, &native), 0);
	struct fid *fids[1] = {&n.cq->fid};
	EQUAL(pthread_mutex_lock(native.mutex), 0);
	EQUAL(fi_trywait(n.fabric, fids, 1), 0);
	EQUAL(fi_cq_signal(n.cq), 0);
	abi_close(&n);
}

static void wait_sets(void)
{
	enum fi_wait_obj sets[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD};
	for (size_t k = 0; k < sizeof(sets) / sizeof(sets[0]); k++) {
		struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE};
		struct pair p;
		open_pair(&p, &want);
		struct fi_wait_attr wait_attr = {.wait_obj = sets[k]};
		struct fid_wait *set;
		EQUAL(fi_wait_open(p.near.fabric, &wait_attr, &set), 0);
		struct waited w = {p.near.fabric, &set->fid, sets[k]};
		says(w.fid, sets[k]);
		/* An endpoint whose queues are all in it. */
		struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET, .wait_set = set};
		struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_SET, .wait_set = set};
		struct fi_eq_attr eq_attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_SET, .wait_set = set};
		struct fid_cq *cq;
		struct fid_cntr *cntr;
		struct fid_eq *eq;
		struct fid_ep *ep;
		EQUAL(fi_cq_open(p.near.domain, &cq_attr, &cq, NULL), 0);
		EQUAL(fi_cntr_open(p.near.domain, &cntr_attr, &cntr, NULL), 0);
		EQUAL(fi_eq_open(p.near.fabric, &eq_attr, &eq, NULL), 0);
		says(&cq->fid, FI_WAIT_SET);
		EQUAL(fi_close(&set->fid), -FI_EBUSY);
		EQUAL(fi_endpoint(p.near.domain, p.near.info, &ep, NULL), 0);
		EQUAL(fi_ep_bind(ep, &p.near.av->fid, 0), 0);
		EQUAL(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EQUAL(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
		EQUAL(fi_enable(ep), 0);
		struct sockaddr_in name;
		size_t len = sizeof(name);
		EQUAL(fi_getname(&ep->fid, &name, &len), 0);
		p.to_near = abi_insert(&p.far, &name);
		/* Those inside are not waited for by themselves. */
		struct fi_cq_tagged_entry entry;
		EQUAL(fi_cq_sread(cq, &entry, 1, NULL, 0), -FI_ENOSYS);
		EQUAL(fi_wait(set, 30), -FI_ETIMEDOUT);
		char in[64];
		for (int ours = 0; ours < 2; ours++) {
			pthread_t thread;
			EQUAL(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
			EQUAL(pthread_create(&thread, NULL, send_later, &p), 0);
			ssize_t rc;
			double end = abi_now() + PATIENCE;
			do {
				if (abi_now() > end)
					FAIL("%s: stuck", name_of[sets[k]]);
				if (ours)
					EQUAL(fi_wait(set, PATIENCE_MS), 0);
				else
					block(&w);
				rc = fi_cq_read(cq, &entry, 1);
			} while (rc == -FI_EAGAIN);
			EQUAL(rc, 1);
			EQUAL(pthread_join(thread, NULL), 0);
			EQUAL(fi_cntr_read(cntr), ours + 1);
		}
		/* An event, a counter that was set, a signal: each is a reason. */
		struct fi_eq_entry event = {0};
		uint32_t number;
		EQUAL(fi_wait(set, 0), -FI_ETIMEDOUT);
		EQUAL(fi_eq_write(eq, FI_NOTIFY, &event, sizeof(event), 0), sizeof(event));
		EQUAL(fi_wait(set, PATIENCE_MS), 0);
		EQUAL(fi_eq_read(eq, &number, &event, sizeof(event), 0), sizeof(event));
		EQUAL(fi_wait(set, 0), -FI_ETIMEDOUT);
		EQUAL(fi_cntr_add(cntr, 1), 0);
		EQUAL(fi_wait(set, PATIENCE_MS), 0);
		EQUAL(fi_cntr_read(cntr), 3);
		EQUAL(fi_wait(set, 0), -FI_ETIMEDOUT);
		EQUAL(fi_cq_signal(cq), 0);
		EQUAL(fi_wait(set, PATIENCE_MS), 0);
		EQUAL(fi_wait(set, 0), -FI_ETIMEDOUT);
		EQUAL(fi_close(&ep->fid), 0);
		EQUAL(fi_close(&cq->fid), 0);
		EQUAL(fi_close(&cntr->fid), 0);
		EQUAL(fi_close(&eq->fid), 0);
		EQUAL(fi_wait(set, 0), -FI_ETIMEDOUT);
		EQUAL(fi_close(&set->fid), 0);
		close_pair(&p);
	}
	/* What makes no sense. */
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	struct fi_wait_attr none = {.wait_obj = FI_WAIT_NONE}, set_of = {.wait_obj = FI_WAIT_SET},
			    flagged = {.wait_obj = FI_WAIT_FD, .flags = 1};
	struct fid_wait *set;
	EQUAL(fi_wait_open(n.fabric, &none, &set), -FI_EINVAL);
	EQUAL(fi_wait_open(n.fabric, &set_of, &set), -FI_EINVAL);
	EQUAL(fi_wait_open(n.fabric, &flagged, &set), -FI_EINVAL);
	struct fi_cq_attr cq_attr = {.wait_obj = FI_WAIT_SET};
	struct fid_cq *cq;
	EQUAL(fi_cq_open(n.domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	abi_close(&n);
}

static void poll_sets(void)
{
	struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE};
	struct pair p;
	open_pair(&p, &want);
	struct fi_poll_attr attr = {0}, flagged = {.flags = 1};
	struct fid_poll *set;
	EQUAL(fi_poll_open(p.near.domain, &flagged, &set), -FI_EINVAL);
	EQUAL(fi_poll_open(p.near.domain, &attr, &set), 0);
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	int cq_mark, cntr_mark;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_cntr_attr cntr_attr = {0};
	EQUAL(fi_cq_open(p.near.domain, &cq_attr, &cq, &cq_mark), 0);
	EQUAL(fi_cntr_open(p.near.domain, &cntr_attr, &cntr, &cntr_mark), 0);
	EQUAL(fi_poll_add(set, &cq->fid, 0), 0);
	EQUAL(fi_poll_add(set, &cntr->fid, 0), 0);
	EQUAL(fi_poll_add(set, &cq->fid, 0), 0);
	EQUAL(fi_poll_add(set, &p.near.domain->fid, 0), -FI_EINVAL);
	EQUAL(fi_close(&cq->fid), -FI_EBUSY);
	struct fid_ep *ep;
	EQUAL(fi_endpoint(p.near.domain, p.near.info, &ep, NULL), 0);
	EQUAL(fi_ep_bind(ep, &p.near.av->fid, 0), 0);
	EQUAL(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
	EQUAL(fi_enable(ep), 0);
	struct sockaddr_in name;
	size_t len = sizeof(name);
	EQUAL(fi_getname(&ep->fid, &name, &len), 0);
	p.to_near = abi_insert(&p.far, &name);
	void *found[4] = {0};
	EQUAL(fi_poll(set, found, 4), 0);
	char in[64];
	pthread_t thread;
	EQUAL(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(pthread_create(&thread, NULL, send_later, &p), 0);
	/* It makes progress by itself. */
	double end = abi_now() + PATIENCE;
	int rc;
	while ((rc = fi_poll(set, found, 4)) == 0)
		CHECK(abi_now() < end);
	EQUAL(pthread_join(thread, NULL), 0);
	CHECK(rc == 2 && found[0] == &cq_mark && found[1] == &cntr_mark);
	/* The queue is still not empty; the counter has not changed since. */
	EQUAL(fi_poll(set, found, 4), 1);
	CHECK(found[0] == &cq_mark);
	EQUAL(fi_poll(set, found, 0), 0);
	struct fi_cq_tagged_entry entry;
	EQUAL(fi_cq_read(cq, &entry, 1), 1);
	EQUAL(fi_poll(set, found, 4), 0);
	/* What the application sets is no news. */
	EQUAL(fi_cntr_add(cntr, 5), 0);
	EQUAL(fi_poll(set, found, 4), 0);
	EQUAL(fi_cntr_adderr(cntr, 1), 0);
	EQUAL(fi_poll(set, found, 1), 1);
	CHECK(found[0] == &cntr_mark);
	/* An operation is news although the application changes the counter before it asks. */
	for (int k = 0; k < 2; k++) {
		EQUAL(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		uint64_t before = fi_cntr_read(cntr);
		RETRY(&p.far, fi_send(p.far.ep, p.buf, 8, NULL, p.to_near, NULL));
		for (end = abi_now() + PATIENCE; fi_cntr_read(cntr) == before;) {
			CHECK(abi_now() < end);
			(void)fi_cq_read(p.far.cq, &entry, 1);
		}
		EQUAL(k ? fi_cntr_set(cntr, 3) : fi_cntr_add(cntr, 10), 0);
		EQUAL(fi_cq_read(cq, &entry, 1), 1);
		EQUAL(fi_poll(set, found, 4), 1);
		CHECK(found[0] == &cntr_mark);
		EQUAL(fi_poll(set, found, 4), 0);
		EQUAL(fi_cntr_set(cntr, 7), 0);
		EQUAL(fi_poll(set, found, 4), 0);
	}
	EQUAL(fi_poll_del(set, &cq->fid, 0), 0);
	EQUAL(fi_poll_del(set, &cq->fid, 0), -FI_EINVAL);
	EQUAL(fi_close(&ep->fid), 0);
	EQUAL(fi_close(&cq->fid), 0);
	EQUAL(fi_close(&cntr->fid), -FI_EBUSY);
	EQUAL(fi_close(&set->fid), 0);
	EQUAL(fi_close(&cntr->fid), 0);
	close_pair(&p);
}

/* Somebody waits for a threshold of one counter. */
struct patient {
	struct fid_cntr *cntr;
	uint64_t threshold;
	int rc;
	_Atomic int done;
};

/* Threads that are about to wait. A thread that began after an error was counted would wait for the next one. */
static _Atomic int begun;

static void *wait_for(void *arg)
{
	struct patient *one = arg;
	begun++;
	one->rc = fi_cntr_wait(one->cntr, one->threshold, PATIENCE_MS);
	one->done = 1;
	return NULL;
}

static void until_done(_Atomic int *done)
{
	double end = abi_now() + PATIENCE / 2;
	while (!*done) {
		if (abi_now() > end)
			FAIL("somebody was not woken");
		usleep(1000);
	}
}

/* Everybody whose threshold is reached wakes up, whoever else waits for more; an error wakes them all. */
static void thresholds(void)
{
	struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE};
	struct node n;
	abi_open(&n, &want);
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_FD};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n.domain, &attr, &cntr, NULL), 0);
	enum { ROUNDS = 20, WAITERS = 6 };
	for (int round = 0; round < ROUNDS; round++) {
		struct patient all[WAITERS] = {0};
		pthread_t threads[WAITERS];
		EQUAL(fi_cntr_set(cntr, 0), 0);
		for (int i = 0; i < WAITERS; i++) {
			all[i] = (struct patient){.cntr = cntr, .threshold = (uint64_t)(WAITERS - i)};
			EQUAL(pthread_create(&threads[i], NULL, wait_for, &all[i]), 0);
		}
		while (begun < (round + 1) * WAITERS)
			usleep(1000);
		usleep(5 * 1000);
		for (int i = WAITERS - 1; i > 0; i--) {
			EQUAL(fi_cntr_add(cntr, 1), 0);
			until_done(&all[i].done);
			EQUAL(all[i].rc, 0);
			CHECK(!all[0].done);
		}
		EQUAL(round % 2 ? fi_cntr_adderr(cntr, 1) : fi_cntr_seterr(cntr, (uint64_t)round + 77), 0);
		until_done(&all[0].done);
		EQUAL(all[0].rc, -FI_EAVAIL);
		for (int i = 0; i < WAITERS; i++)
			EQUAL(pthread_join(threads[i], NULL), 0);
	}
	EQUAL(fi_close(&cntr->fid), 0);
	abi_close(&n);
}

static struct node signalled;
static _Atomic int asleep;

static void *sleep_on_queue(void *arg)
{
	struct fi_cq_tagged_entry entry;
	asleep++;
	EQUAL(fi_cq_sread(signalled.cq, &entry, 1, NULL, PATIENCE_MS), -FI_EAGAIN);
	*(_Atomic int *)arg = 1;
	return NULL;
}

/* fi_cq_signal unblocks whoever waits, not one of them. */
static void a_signal_wakes_everybody(void)
{
	struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE, .wait = FI_WAIT_UNSPEC};
	abi_open(&signalled, &want);
	enum { WAITERS = 4 };
	_Atomic int done[WAITERS] = {0};
	pthread_t threads[WAITERS];
	for (int i = 0; i < WAITERS; i++)
		EQUAL(pthread_create(&threads[i], NULL, sleep_on_queue, &done[i]), 0);
	while (asleep < WAITERS)
		usleep(1000);
	usleep(50 * 1000);
	EQUAL(fi_cq_signal(signalled.cq), 0);
	for (int i = 0; i < WAITERS; i++) {
		until_done(&done[i]);
		EQUAL(pthread_join(threads[i], NULL), 0);
	}
	abi_close(&signalled);
}

/* A signal is one reason not to block. It used to leave fi_trywait at -FI_EAGAIN, and a wait set awake, for ever.
 * */
static void a_signal_is_answered_once(void)
{
	enum fi_wait_obj kinds[] = {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD};
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct want want = {.caps = FI_MSG, .threading = FI_THREAD_SAFE, .wait = kinds[k]};
		struct fi_cq_tagged_entry entry;
		abi_open(&signalled, &want);
		struct fid *fids[1] = {&signalled.cq->fid};
		EQUAL(fi_trywait(signalled.fabric, fids, 1), 0);
		for (int round = 0; round < 3; round++) {
			/* Several signals without a wait in between count as one. */
			for (int i = 0; i <= round; i++)
				EQUAL(fi_cq_signal(signalled.cq), 0);
			EQUAL(fi_trywait(signalled.fabric, fids, 1), -FI_EAGAIN);
			EQUAL(fi_cq_read(signalled.cq, &entry, 1), -FI_EAGAIN);
			EQUAL(fi_trywait(signalled.fabric, fids, 1), 0);
			struct pollfd fd = {.fd = -1, .events = POLLIN};
			if (kinds[k] == FI_WAIT_FD) {
				EQUAL(fi_control(&signalled.cq->fid, FI_GETWAIT, &fd.fd), 0);
				EQUAL(poll(&fd, 1, 0), 0);
			}
			/* A signal that comes after the check wakes the sleeper. */
			EQUAL(fi_cq_signal(signalled.cq), 0);
			if (kinds[k] == FI_WAIT_FD)
				EQUAL(poll(&fd, 1, 0), 1);
			EQUAL(fi_cq_sread(signalled.cq, &entry, 1, NULL, PATIENCE_MS), -FI_EAGAIN);
			double begin = abi_now();
			EQUAL(fi_cq_sread(signalled.cq, &entry, 1, NULL, 20), -FI_EAGAIN);
			CHECK(abi_now() - begin > 0.015);
			EQUAL(fi_trywait(signalled.fabric, fids, 1), 0);
		}
		/* A thread that calls fi_trywait takes no signal from the threads in waiting calls. */
		_Atomic int done = 0;
		pthread_t thread;
		asleep = 0;
		EQUAL(pthread_create(&thread, NULL, sleep_on_queue, &done), 0);
		while (!asleep)
			usleep(1000);
		usleep(10 * 1000);
		EQUAL(fi_cq_signal(signalled.cq), 0);
		for (int i = 0; i < 3; i++)
			(void)fi_trywait(signalled.fabric, fids, 1);
		until_done(&done);
		EQUAL(pthread_join(thread, NULL), 0);
		abi_close(&signalled);
	}
}

/* What another queue's progress has counted is a reason not to block, too. */
static void what_others_have_found(void)
{
	struct want want = {.caps = FI_MSG};
	struct pair p;
	open_pair(&p, &want);
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_FD};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(p.near.domain, &attr, &cntr, NULL), 0);
	EQUAL(fi_ep_bind(p.near.ep, &cntr->fid, FI_RECV), 0);
	EQUAL(fi_cntr_read(cntr), 0);
	char in[64];
	struct fi_cq_tagged_entry entry;
	EQUAL(fi_recv(p.near.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&p.far, fi_send(p.far.ep, p.buf, 8, NULL, p.to_near, NULL));
	abi_expect(&p.near, &p.far, &entry);
	struct fid *fids[1] = {&cntr->fid};
	EQUAL(fi_trywait(p.near.fabric, fids, 1), -FI_EAGAIN);
	EQUAL(fi_cntr_read(cntr), 1);
	EQUAL(fi_trywait(p.near.fabric, fids, 1), 0);
	EQUAL(fi_close(&p.near.ep->fid), 0);
	EQUAL(fi_close(&cntr->fid), 0);
	EQUAL(fi_endpoint(p.near.domain, p.near.info, &p.near.ep, NULL), 0);
	close_pair(&p);
}

/* Somebody who is silent: what is sent to him has to be sent again, and at last given up, which nothing but the
 * object that is slept on can bring about. */
static void timers_wake_sleepers(void)
{
	int silent = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	EQUAL(bind(silent, (struct sockaddr *)&name, len), 0);
	EQUAL(getsockname(silent, (struct sockaddr *)&name, &len), 0);
	enum fi_wait_obj own[] = {FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_UNSPEC};
	for (int k = 0; k < 3; k++) {
		struct want want = {.caps = FI_MSG, .wait = own[k]};
		struct node n;
		abi_open(&n, &want);
		fi_addr_t nobody = abi_insert(&n, &name);
		char out[8] = {0};
		struct fi_cq_tagged_entry entry;
		EQUAL(fi_send(n.ep, out, sizeof(out), NULL, nobody, NULL), 0);
		struct waited w = {n.fabric, &n.cq->fid, own[k]};
		ssize_t rc;
		double end = abi_now() + PATIENCE;
		do {
			CHECK(abi_now() < end);
			if (own[k] != FI_WAIT_UNSPEC)
				block(&w);
			rc = own[k] == FI_WAIT_UNSPEC ? fi_cq_sread(n.cq, &entry, 1, NULL, PATIENCE_MS)
						      : fi_cq_read(n.cq, &entry, 1);
		} while (rc == -FI_EAGAIN);
		EQUAL(rc, -FI_EAVAIL);
		struct fi_cq_err_entry err = {0};
		EQUAL(fi_cq_readerr(n.cq, &err, 0), 1);
		abi_close(&n);
	}
	close(silent);
}

static double used(void)
{
	struct rusage use;
	EQUAL(getrusage(RUSAGE_SELF, &use), 0);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* Who sleeps uses no processor: less than a hundredth of the time asked for, all threads of the process together. */
static void sleepers_are_idle(void)
{
	const double seconds = 2.0;
	if (getenv("ABI_SLOW"))
		return;
	for (int k = 0; k < 3; k++) {
		struct want want = {.caps = FI_MSG, .wait = k == 1 ? FI_WAIT_MUTEX_COND : FI_WAIT_FD};
		struct node n;
		abi_open(&n, &want);
		struct fi_cq_tagged_entry entry;
		struct waited w = {n.fabric, &n.cq->fid, want.wait};
		double before = used();
		if (k == 0) {
			EQUAL(fi_cq_sread(n.cq, &entry, 1, NULL, (int)(seconds * 1000)), -FI_EAGAIN);
		} else if (k == 1) {
			struct fi_mutex_cond native;
			struct fid *fids[1] = {w.fid};
			EQUAL(fi_control(w.fid, FI_GETWAIT, &native), 0);
			struct timespec end;
			clock_gettime(CLOCK_REALTIME, &end);
			end.tv_sec += (time_t)seconds;
			EQUAL(pthread_mutex_lock(native.mutex), 0);
			int rc = 0;
			while (rc != ETIMEDOUT) {
				(void)fi_trywait(n.fabric, fids, 1);
				rc = pthread_cond_timedwait(native.cond, native.mutex, &end);
			}
			EQUAL(pthread_mutex_unlock(native.mutex), 0);
		} else {
			struct fi_wait_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
			struct fid_wait *set;
			EQUAL(fi_wait_open(n.fabric, &attr, &set), 0);
			EQUAL(fi_wait(set, (int)(seconds * 1000)), -FI_ETIMEDOUT);
			EQUAL(fi_close(&set->fid), 0);
		}
		CHECK(used() - before < seconds / 100);
		abi_close(&n);
	}
}

int main(void)
{
	RUN(completion_queues);
	RUN(counters);
	RUN(event_queues);
	RUN(a_held_mutex_and_close);
	RUN(wait_sets);
	RUN(poll_sets);
	RUN(thresholds);
	RUN(a_signal_wakes_everybody);
	RUN(a_signal_is_answered_once);
	RUN(what_others_have_found);
	RUN(timers_wake_sleepers);
	RUN(sleepers_are_idle);
	printf("%d checks\n", abi_checks);
	return 0;
}
