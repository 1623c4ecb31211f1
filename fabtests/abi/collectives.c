/* Collective operations (fi_collective(3)): groups of one to five endpoints of a process, and of processes of which one
 * dies. Each test has a process. */
#include "group.h"

#include <complex.h>

static const struct want collective = {.caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE};

#define LONGEST 20000

static uint64_t in[MOST][MOST * LONGEST], out[MOST][MOST * LONGEST];

static uint64_t value(int member, size_t at)
{
	return (uint64_t)member * 1000003 + at * 7919 + 1;
}

static void every_operation(void)
{
	const size_t counts[] = {1, 7, 1000, LONGEST};
	void *cx = &contexts[9];
	for (int n = 1; n <= MOST; n++) {
		group_begin(n, &collective);
		for (int i = 0; i < n; i++)
			for (size_t at = 0; at < (size_t)n * LONGEST; at++)
				in[i][at] = value(i, at);
		/* Nobody is through before the last has come. */
		for (int i = 0; i < n; i++) {
			for (int turn = 0; turn < 50; turn++)
				for (int j = 0; j < i; j++)
					EQUAL(fi_cq_read(members[j].n.cq, out, 0), -FI_EAGAIN);
			EQUAL(i % 2 ? fi_barrier(members[i].n.ep, members[i].group, cx)
				    : fi_barrier2(members[i].n.ep, members[i].group, FI_COMPLETION, cx), 0);
		}
		group_done(cx);
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
			size_t count = counts[c];
			for (int root = 0; root < n; root++) {
				for (int i = 0; i < n; i++) {
					memset(out[i], 0xEE, sizeof(out[i]));
					if (i == root)
						memcpy(out[i], in[i], 8 * count);
					EQUAL(fi_broadcast(members[i].n.ep, out[i], count, NULL, members[i].group, (fi_addr_t)root, FI_UINT64, 0, cx), 0);
				}
				group_done(cx);
				for (int i = 0; i < n; i++)
					CHECK(memcmp(out[i], in[root], 8 * count) == 0 && out[i][count] == 0xEEEEEEEEEEEEEEEE);
				for (int i = 0; i < n; i++)
					EQUAL(fi_reduce(members[i].n.ep, in[i], count, NULL, i == root ? out[i] : NULL, NULL, members[i].group, (fi_addr_t)root, FI_UINT64, FI_SUM, 0, cx), 0);
				group_done(cx);
				for (size_t at = 0; at < count; at++) {
					uint64_t sum = 0;
					for (int i = 0; i < n; i++)
						sum += value(i, at);
					CHECK(out[root][at] == sum);
				}
				for (int i = 0; i < n; i++)
					EQUAL(fi_scatter(members[i].n.ep, i == root ? in[i] : NULL, count, NULL, out[i], NULL, members[i].group, (fi_addr_t)root, FI_UINT64, 0, cx), 0);
				group_done(cx);
				for (int i = 0; i < n; i++)
					CHECK(memcmp(out[i], in[root] + (size_t)i * count, 8 * count) == 0);
				for (int i = 0; i < n; i++)
					EQUAL(fi_gather(members[i].n.ep, in[i], count, NULL, i == root ? out[i] : NULL, NULL, members[i].group, (fi_addr_t)root, FI_UINT64, 0, cx), 0);
				group_done(cx);
				for (int i = 0; i < n; i++)
					CHECK(memcmp(out[root] + (size_t)i * count, in[i], 8 * count) == 0);
			}
			for (int i = 0; i < n; i++)
				EQUAL(fi_alltoall(members[i].n.ep, in[i], count, NULL, out[i], NULL, members[i].group, FI_UINT64, 0, cx), 0);
			group_done(cx);
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++)
					CHECK(memcmp(out[i] + (size_t)j * count, in[j] + (size_t)i * count, 8 * count) == 0);
			for (int i = 0; i < n; i++)
				EQUAL(fi_allgather(members[i].n.ep, in[i], count, NULL, out[i], NULL, members[i].group, FI_UINT64, 0, cx), 0);
			group_done(cx);
			for (int i = 0; i < n; i++)
				for (int j = 0; j < n; j++)
					CHECK(memcmp(out[i] + (size_t)j * count, in[j], 8 * count) == 0);
			for (int i = 0; i < n; i++)
				EQUAL(fi_allreduce(members[i].n.ep, in[i], count, NULL, out[i], NULL, members[i].group, FI_UINT64, FI_SUM, 0, cx), 0);
			group_done(cx);
			for (int i = 0; i < n; i++)
				for (size_t at = 0; at < count; at++) {
					uint64_t sum = 0;
					for (int j = 0; j < n; j++)
						sum += value(j, at);
					CHECK(out[i][at] == sum);
				}
			for (int i = 0; i < n; i++)
				EQUAL(fi_reduce_scatter(members[i].n.ep, in[i], count, NULL, out[i], NULL, members[i].group, FI_UINT64, FI_MAX, 0, cx), 0);
			group_done(cx);
			for (int i = 0; i < n; i++)
				for (size_t at = 0; at < count; at++)
					CHECK(out[i][at] == value(n - 1, (size_t)i * count + at));
		}
		group_leave();
		group_end();
	}
}

/* Every type and operation that fi_query_collective knows, of small numbers whose results every type has. */
static void every_type(void)
{
	void *cx = &contexts[8];
	group_begin(3, &collective);
	const int most_types = FI_LONG_DOUBLE_COMPLEX;
	int there = 0, refused = 0;
	for (int type = 0; type <= most_types; type++)
		for (int op = FI_MIN; op <= FI_BXOR; op++) {
			struct fi_collective_attr attr = {.op = op, .datatype = type};
			int rc = fi_query_collective(members[0].n.domain, FI_ALLREDUCE, &attr, 0);
			static unsigned char from[3][32 * 4], to[3][32 * 4];
			double expected = 0;
			int numbers[3] = {5, 3, 6};
			if (rc) {
				EQUAL(rc, -FI_EOPNOTSUPP);
				EQUAL(fi_allreduce(members[0].n.ep, from, 4, NULL, to, NULL, members[0].group, type, op, 0, cx), -FI_EOPNOTSUPP);
				refused++;
				continue;
			}
			there++;
			CHECK(attr.datatype_attr.size <= 32 && attr.datatype_attr.count > 1000 && attr.max_members >= 1000);
			switch (op) {
			case FI_MIN: expected = 3; break;
			case FI_MAX: expected = 6; break;
			case FI_SUM: expected = 14; break;
			case FI_PROD: expected = 90; break;
			case FI_LOR: case FI_LAND: case FI_LXOR: expected = 1; break;
			case FI_BOR: expected = 7; break;
			case FI_BAND: expected = 0; break;
			case FI_BXOR: expected = 5 ^ 3 ^ 6; break;
			}
			for (int i = 0; i < 3; i++)
				for (int at = 0; at < 4; at++) {
					size_t size = attr.datatype_attr.size;
					unsigned char *place = from[i] + (size_t)at * size;
					int v = numbers[i];
					memset(place, 0, size);
					switch (type) {
					case FI_FLOAT: *(float *)place = (float)v; break;
					case FI_DOUBLE: *(double *)place = v; break;
					case FI_FLOAT_COMPLEX: *(float complex *)place = (float)v; break;
					case FI_DOUBLE_COMPLEX: *(double complex *)place = v; break;
					case FI_LONG_DOUBLE: { long double x = v; memcpy(place, &x, 10); } break;
					case FI_LONG_DOUBLE_COMPLEX: { long double x = v; memcpy(place, &x, 10); } break;
					default: *place = (unsigned char)v;
					}
				}
			for (int i = 0; i < 3; i++)
				EQUAL(fi_allreduce(members[i].n.ep, from[i], 4, NULL, to[i], NULL, members[i].group, type, op, 0, cx), 0);
			group_done(cx);
			for (int i = 0; i < 3; i++)
				for (int at = 0; at < 4; at++) {
					unsigned char *place = to[i] + (size_t)at * attr.datatype_attr.size;
					double found;
					switch (type) {
					case FI_FLOAT: found = *(float *)place; break;
					case FI_DOUBLE: found = *(double *)place; break;
					case FI_FLOAT_COMPLEX: found = crealf(*(float complex *)place); break;
					case FI_DOUBLE_COMPLEX: found = creal(*(double complex *)place); break;
					case FI_LONG_DOUBLE:
					case FI_LONG_DOUBLE_COMPLEX: { long double x = 0; memcpy(&x, place, 10); found = (double)x; } break;
					default: found = *place;
					}
					if (found != expected)
						FAIL("type %d op %d: %g, not %g", type, op, found, expected);
					abi_checks++;
				}
		}
	CHECK(there > 80 && refused > 20);
	struct fi_collective_attr attr = {.op = FI_NOOP, .datatype = FI_VOID};
	EQUAL(fi_query_collective(members[0].n.domain, FI_BARRIER, &attr, 0), 0);
	EQUAL(fi_query_collective(members[0].n.domain, FI_ALLGATHER, &attr, 0), -FI_EOPNOTSUPP);
	EQUAL(fi_query_collective(members[0].n.domain, 99, &attr, 0), -FI_EOPNOTSUPP);
	group_leave();
	group_end();
}

/* Several operations of several groups at once, between messages of the application's with every tag. */
static void several_at_once(void)
{
	enum { EACH = 20 };
	static uint64_t from[MOST][EACH], to[MOST][EACH], two[MOST][EACH];
	struct member first[MOST];
	static uint64_t mail[MOST];
	group_begin(4, &collective);
	memcpy(first, members, sizeof(first));
	group_join();
	for (int i = 0; i < many; i++)
		CHECK(first[i].group != members[i].group);
	/* A receive for anything, which no message of ours meets. */
	for (int i = 0; i < many; i++)
		EQUAL(fi_trecv(members[i].n.ep, &mail[i], 8, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &contexts[50]), 0);
	for (int i = 0; i < many; i++)
		for (int op = 0; op < EACH; op++) {
			from[i][op] = value(i, (size_t)op);
			EQUAL(fi_allreduce(members[i].n.ep, &from[i][op], 1, NULL, &to[i][op], NULL, first[i].group, FI_UINT64, FI_SUM, 0, &contexts[op]), 0);
			EQUAL(fi_allreduce(members[i].n.ep, &from[i][op], 1, NULL, &two[i][op], NULL, members[i].group, FI_UINT64, FI_MAX, 0, &contexts[op]), 0);
		}
	for (int i = 0; i < many; i++)
		for (int op = 0; op < 2 * EACH; op++) {
			struct fi_cq_tagged_entry e;
			EQUAL(group_next(&members[i], &e), 1);
			CHECK(e.flags & FI_COLLECTIVE);
		}
	for (int i = 0; i < many; i++)
		for (int op = 0; op < EACH; op++) {
			uint64_t sum = 0;
			for (int j = 0; j < many; j++)
				sum += from[j][op];
			CHECK(to[i][op] == sum && two[i][op] == from[many - 1][op]);
		}
	for (int i = 0; i < many; i++) {
		struct fi_cq_tagged_entry e;
		uint64_t word = 77;
		EQUAL(fi_tinject(members[(i + 1) % many].n.ep, &word, 8, (fi_addr_t)i, 5), 0);
		EQUAL(group_next(&members[i], &e), 1);
		CHECK(e.op_context == &contexts[50] && mail[i] == 77);
	}
	group_leave();
	/* The first group is still there. */
	for (int i = 0; i < many; i++)
		EQUAL(fi_barrier(first[i].n.ep, first[i].group, &contexts[3]), 0);
	group_done(&contexts[3]);
	memcpy(members, first, sizeof(first));
	group_leave();
	group_end();
}

static size_t members_of(struct fid_av_set *set, struct member *m)
{
	/* What a set has is seen by what can be taken out of it. */
	size_t count = 0;
	(void)m;
	for (fi_addr_t addr = 0; addr < 16; addr++)
		if (fi_av_set_remove(set, addr) == 0) {
			count |= 1u << addr;
		}
	return count;
}

static void sets(void)
{
	struct fi_av_set_attr all = {.start_addr = 0, .end_addr = 4, .stride = 1};
	struct fi_av_set_attr odd = {.start_addr = 1, .end_addr = 4, .stride = 2};
	struct fi_av_set_attr none = {.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL};
	struct fid_av_set *x, *y;
	group_begin(5, &collective);
	struct member *m = &members[0];
	EQUAL(fi_av_set(m->n.av, &all, &x, NULL), 0);
	EQUAL(fi_av_set(m->n.av, &odd, &y, NULL), 0);
	EQUAL(fi_av_set_intersect(x, y), 0);
	EQUAL(members_of(x, m), 0x0A);
	EQUAL(fi_close(&x->fid), 0);
	EQUAL(fi_av_set(m->n.av, &all, &x, NULL), 0);
	EQUAL(fi_av_set_diff(x, y), 0);
	EQUAL(members_of(x, m), 0x15);
	EQUAL(fi_av_set_union(x, y), 0);
	EQUAL(fi_av_set_insert(x, 0), 0);
	EQUAL(fi_av_set_insert(x, 0), -FI_EINVAL);
	EQUAL(fi_av_set_insert(x, 5), -FI_EINVAL);
	EQUAL(fi_av_set_remove(x, 4), -FI_EINVAL);
	EQUAL(members_of(x, m), 0x0B);
	EQUAL(fi_close(&x->fid), 0);
	EQUAL(fi_close(&y->fid), 0);
	EQUAL(fi_av_set(m->n.av, &none, &x, NULL), 0);
	EQUAL(members_of(x, m), 0);
	/* Who is not in it cannot join it. */
	struct fid_mc *mc;
	EQUAL(fi_av_set_insert(x, 1), 0);
	EQUAL(fi_join_collective(m->n.ep, FI_ADDR_NOTAVAIL, x, 0, &mc, NULL), -FI_EINVAL);
	EQUAL(fi_close(&x->fid), 0);
	/* A group of some, in another order. */
	struct member *some[2] = {&members[3], &members[1]};
	for (int i = 0; i < 2; i++) {
		EQUAL(fi_close(&some[i]->mc->fid), 0);
		EQUAL(fi_close(&some[i]->set->fid), 0);
		EQUAL(fi_av_set(some[i]->n.av, &none, &some[i]->set, NULL), 0);
		EQUAL(fi_av_set_insert(some[i]->set, 3), 0);
		EQUAL(fi_av_set_insert(some[i]->set, 1), 0);
		EQUAL(fi_join_collective(some[i]->n.ep, FI_ADDR_NOTAVAIL, some[i]->set, 0, &some[i]->mc, NULL), 0);
	}
	for (int i = 0; i < 2; i++)
		group_joined(some[i], NULL);
	uint64_t mine[2] = {33, 11}, all_of[2][2];
	for (int i = 0; i < 2; i++)
		EQUAL(fi_allgather(some[i]->n.ep, &mine[i], 1, NULL, all_of[i], NULL, some[i]->group, FI_UINT64, 0, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry e;
		EQUAL(group_next(some[i], &e), 1);
		CHECK(all_of[i][0] == 33 && all_of[i][1] == 11);
	}
	group_leave();
	group_end();
}

static void bad_input(void)
{
	uint64_t word = 1, result;
	group_begin(2, &collective);
	struct member *m = &members[0];
	EQUAL(fi_barrier(m->n.ep, 12345, NULL), -FI_EINVAL);
	EQUAL(fi_broadcast(m->n.ep, &word, 1, NULL, m->group, 7, FI_UINT64, 0, NULL), -FI_EINVAL);
	EQUAL(fi_broadcast(m->n.ep, &word, 1, NULL, m->group, 0, FI_VOID, 0, NULL), -FI_EOPNOTSUPP);
	EQUAL(fi_allreduce(m->n.ep, &word, 1, NULL, &result, NULL, m->group, FI_UINT64, FI_ATOMIC_WRITE, 0, NULL), -FI_EOPNOTSUPP);
	EQUAL(fi_allreduce(m->n.ep, &word, 1, NULL, &result, NULL, m->group, FI_UINT64, FI_CSWAP, 0, NULL), -FI_EOPNOTSUPP);
	EQUAL(fi_allreduce(m->n.ep, &word, 1, NULL, NULL, NULL, m->group, FI_UINT64, FI_SUM, 0, NULL), -FI_EINVAL);
	EQUAL(fi_allreduce(m->n.ep, NULL, 1, NULL, &result, NULL, m->group, FI_UINT64, FI_SUM, 0, NULL), -FI_EINVAL);
	EQUAL(fi_allreduce(m->n.ep, &word, SIZE_MAX / 4, NULL, &result, NULL, m->group, FI_UINT64, FI_SUM, 0, NULL), -FI_EMSGSIZE);
	EQUAL(fi_allreduce(m->n.ep, &word, 1, NULL, &result, NULL, m->group, FI_UINT64, FI_SUM, FI_FENCE, NULL), -FI_EBADFLAGS);
	/* One that was not asked for. */
	struct node c;
	struct fid_mc *mc;
	abi_open(&c, &plain);
	EQUAL(fi_join_collective(c.ep, FI_ADDR_NOTAVAIL, m->set, 0, &mc, NULL), -FI_EOPNOTSUPP);
	abi_close(&c);
	/* Called with different counts: all end, those that notice with an error. */
	static uint64_t from[2][8], to[2][8];
	int errors = 0;
	for (int i = 0; i < 2; i++)
		EQUAL(fi_allreduce(members[i].n.ep, from[i], i ? 8 : 4, NULL, to[i], NULL, members[i].group, FI_UINT64, FI_SUM, 0, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry err = {0};
		if (group_next(&members[i], &e) != 1) {
			EQUAL(fi_cq_readerr(members[i].n.cq, &err, 0), 1);
			EQUAL(err.err, FI_ETRUNC);
			errors++;
		}
	}
	EQUAL(errors, 2);
	/* A group that is left while an operation waits for the others. */
	EQUAL(fi_barrier(m->n.ep, m->group, NULL), 0);
	group_leave();
	group_end();
}

/* One of three processes dies: the others learn of it, and nobody waits for ever. */
static void a_member_dies(void)
{
	enum { N = 3 };
	int to_parent[N][2], from_parent[N][2], failed = 0;
	pid_t children[N];
	for (int i = 0; i < N; i++) {
		CHECK(pipe(to_parent[i]) == 0 && pipe(from_parent[i]) == 0);
		children[i] = fork();
		if (children[i])
			continue;
		struct sockaddr_in names[N];
		struct member *m = &members[0];
		many = 1;
		group_open(m, &collective);
		CHECK(write(to_parent[i][1], &m->n.name, sizeof(m->n.name)) == sizeof(m->n.name));
		CHECK(read(from_parent[i][0], names, sizeof(names)) == sizeof(names));
		for (int j = 0; j < N; j++)
			EQUAL(abi_insert(&m->n, &names[j]), j);
		struct fi_av_set_attr attr = {.start_addr = 0, .end_addr = N - 1, .stride = 1};
		EQUAL(fi_av_set(m->n.av, &attr, &m->set, NULL), 0);
		EQUAL(fi_join_collective(m->n.ep, FI_ADDR_NOTAVAIL, m->set, 0, &m->mc, NULL), 0);
		group_joined(m, NULL);
		struct fi_cq_tagged_entry e;
		for (int round = 0; round < 3; round++) {
			EQUAL(fi_barrier(m->n.ep, m->group, NULL), 0);
			EQUAL(group_next(m, &e), 1);
		}
		if (i == 1)
			raise(SIGKILL);
		/* From here on every operation ends, and with an error where the dead one had a part in it. */
		for (int round = 0; round < 3; round++) {
			struct fi_cq_err_entry err = {0};
			/* Of the dead one comes all of the first; in the others everybody speaks with it, in one of them in a ring. */
			size_t count = round == 2 ? LONGEST : 1;
			if (round == 0)
				EQUAL(fi_broadcast(m->n.ep, out[i], 1, NULL, m->group, 1, FI_UINT64, 0, &contexts[1]), 0);
			else
				EQUAL(fi_allreduce(m->n.ep, in[i], count, NULL, out[i], NULL, m->group, FI_UINT64, FI_SUM, 0, &contexts[1]), 0);
			EQUAL(group_next(m, &e), -FI_EAVAIL);
			EQUAL(fi_cq_readerr(m->n.cq, &err, 0), 1);
			CHECK(err.op_context == &contexts[1]);
			CHECK(err.err == FI_ETIMEDOUT || err.err == FI_EHOSTUNREACH || err.err == FI_ECONNABORTED || err.err == FI_ECONNRESET);
		}
		_exit(0);
	}
	struct sockaddr_in names[N];
	for (int i = 0; i < N; i++)
		CHECK(read(to_parent[i][0], &names[i], sizeof(names[i])) == sizeof(names[i]));
	for (int i = 0; i < N; i++)
		CHECK(write(from_parent[i][1], names, sizeof(names)) == sizeof(names));
	for (int i = 0; i < N; i++) {
		int status;
		EQUAL(waitpid(children[i], &status, 0), children[i]);
		failed += i == 1 ? !WIFSIGNALED(status) : !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	EQUAL(failed, 0);
}

/* An event says that this member has joined. */
static void check_joined(struct member *m, ssize_t rc, uint32_t event, const struct fi_eq_entry *entry)
{
	EQUAL(rc, sizeof(*entry));
	CHECK(event == FI_JOIN_COMPLETE && entry->fid == &m->mc->fid && entry->context == &contexts[m - members]);
	m->group = fi_mc_addr(m->mc);
}

/* fi_domain(3), FI_PROGRESS_MANUAL: reading or waiting on the event queue is enough for what is reported there. */
static void joined_by_reading_events(void)
{
	for (int sleeps = 0; sleeps < 2; sleeps++)
		for (int alone = 0; alone < 2; alone++) {
			struct want want = collective;
			want.threading = alone ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
			group_meet(4, &want);
			group_ask();
			double limit = abi_now() + PATIENCE;
			for (int done = 0; done < many;)
				for (int i = 0; i < many; i++) {
					struct fi_eq_entry entry;
					uint32_t event;
					ssize_t rc;
					if (members[i].group) {
						/* What it sent last may have to be sent again. */
						(void)fi_cq_read(members[i].n.cq, NULL, 0);
						continue;
					}
					if (sleeps)
						rc = fi_eq_sread(members[i].eq, &event, &entry, sizeof(entry), 10, 0);
					else
						rc = fi_eq_read(members[i].eq, &event, &entry, sizeof(entry), 0);
					CHECK(abi_now() < limit);
					if (rc == -FI_EAGAIN)
						continue;
					check_joined(&members[i], rc, event, &entry);
					done++;
				}
			group_leave();
			group_end();
		}
}

/* Longer than a join takes, however slow the machine. */
#define READER_MS 20000

static void *wait_for_join(void *late)
{
	struct fi_eq_entry entry;
	uint32_t event = 0;
	ssize_t rc = fi_eq_sread(members[0].eq, &event, &entry, sizeof(entry), READER_MS, 0);
	if (rc == -FI_EAGAIN)
		*(_Atomic int *)late = 1;
	else
		check_joined(&members[0], rc, event, &entry);
	return NULL;
}

/* One thread sleeps until the event of a join arrives, while another one reads the same queue without waiting. */
static void joined_beside_a_reader(void)
{
	pthread_t thread;
	_Atomic int late = 0;
	struct fi_eq_entry entry;
	uint32_t event;
	group_meet(2, &collective);
	group_ask();
	EQUAL(pthread_create(&thread, NULL, wait_for_join, &late), 0);
	/* Nobody drives the other member, so that nothing can be read yet. */
	for (double end = abi_now() + 0.3; abi_now() < end;)
		EQUAL(fi_eq_read(members[0].eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
	while (!members[1].group || !members[0].group) {
		CHECK(!late);
		(void)fi_cq_read(members[1].n.cq, NULL, 0);
		ssize_t rc = fi_eq_read(members[1].eq, &event, &entry, sizeof(entry), 0);
		if (rc != -FI_EAGAIN)
			check_joined(&members[1], rc, event, &entry);
	}
	EQUAL(pthread_join(thread, NULL), 0);
	group_leave();
	group_end();
}

/* FI_PROGRESS_AUTO: nobody has to do anything. */
static void by_itself(void)
{
	static uint64_t here[4][LONGEST], there[4][LONGEST];
	struct timespec nap = {.tv_sec = getenv("ABI_SLOW") ? 10 : 2};
	struct want want = collective;
	want.progress = FI_PROGRESS_AUTO;
	group_meet(4, &want);
	group_ask();
	nanosleep(&nap, NULL);
	for (int i = 0; i < many; i++) {
		struct fi_eq_entry entry;
		uint32_t event;
		ssize_t rc = fi_eq_read(members[i].eq, &event, &entry, sizeof(entry), 0);
		check_joined(&members[i], rc, event, &entry);
	}
	for (int i = 0; i < many; i++) {
		for (size_t at = 0; at < LONGEST; at++)
			here[i][at] = value(i, at);
		EQUAL(fi_allreduce(members[i].n.ep, here[i], LONGEST, NULL, there[i], NULL, members[i].group, FI_UINT64, FI_SUM, 0, &contexts[i]), 0);
	}
	nanosleep(&nap, NULL);
	/* One look each is too little to move them. */
	for (int i = 0; i < many; i++) {
		struct fi_cq_tagged_entry e;
		EQUAL(fi_cq_read(members[i].n.cq, &e, 1), 1);
		CHECK(e.op_context == &contexts[i]);
		for (size_t at = 0; at < LONGEST; at++)
			CHECK(there[i][at] == 4 * value(0, at) + 6 * 1000003);
	}
	group_leave();
	group_end();
}

/* Under manual progress members that compute do not hold up the one that waits. */
static void while_others_compute(void)
{
	struct want want = collective;
	want.threading = FI_THREAD_DOMAIN;
	group_begin(4, &want);
	for (int round = 0; round < 3; round++) {
		struct member *waits = &members[round];
		struct fi_cq_tagged_entry e;
		uint64_t from[4], to[4];
		for (int i = 0; i < many; i++) {
			from[i] = value(i, (size_t)round);
			EQUAL(fi_allreduce(members[i].n.ep, &from[i], 1, NULL, &to[i], NULL, members[i].group, FI_UINT64, FI_SUM, 0, &contexts[i]), 0);
		}
		double limit = abi_now() + PATIENCE;
		ssize_t rc;
		while ((rc = fi_cq_read(waits->n.cq, &e, 1)) == -FI_EAGAIN)
			CHECK(abi_now() < limit);
		EQUAL(rc, 1);
		for (int i = 0; i < many; i++) {
			/* Theirs shows when they look, and not before. */
			if (&members[i] != waits)
				while ((rc = fi_cq_read(members[i].n.cq, &e, 1)) == -FI_EAGAIN)
					CHECK(abi_now() < limit);
			EQUAL(rc, 1);
			CHECK(to[i] == from[0] + from[1] + from[2] + from[3]);
		}
	}
	group_leave();
	group_end();
}

/* fi_collective(3) leaves open whether a call without FI_COMPLETION writes an entry. libfabric's own provider of
 * collectives always writes one, so applications wait for it without asking (ROFI calls fi_allgather with flags 0 on a
 * queue with FI_SELECTIVE_COMPLETION). */
static void selective_completion(void)
{
	static uint64_t from[2][8], to[2][8];
	const uint64_t asked[2] = {0, FI_COMPLETION};
	struct want want = collective;
	want.selective = FI_SELECTIVE_COMPLETION;
	for (int n = 1; n <= 2; n++) {
		group_begin(n, &want);
		for (int way = 0; way < 2; way++) {
			uint64_t flags = asked[way];
			void *cx = &contexts[way];
#define EVERY_MEMBER(call)                                                        \
	do {                                                                      \
		for (int i = 0; i < n; i++) {                                     \
			struct fid_ep *ep = members[i].n.ep;                      \
			fi_addr_t group = members[i].group;                       \
			EQUAL(call, 0);                                           \
		}                                                                 \
		group_done(cx);                                                   \
	} while (0)
			if (!flags)
				EVERY_MEMBER(fi_barrier(ep, group, cx));
			EVERY_MEMBER(fi_barrier2(ep, group, flags, cx));
			EVERY_MEMBER(fi_broadcast(ep, to[i], 4, NULL, group, 0, FI_UINT64, flags, cx));
			EVERY_MEMBER(fi_alltoall(ep, from[i], 4, NULL, to[i], NULL, group, FI_UINT64, flags, cx));
			EVERY_MEMBER(fi_allreduce(ep, from[i], 4, NULL, to[i], NULL, group, FI_UINT64, FI_SUM, flags, cx));
			EVERY_MEMBER(fi_allgather(ep, from[i], 4, NULL, to[i], NULL, group, FI_UINT64, flags, cx));
			EVERY_MEMBER(fi_reduce_scatter(ep, from[i], 4, NULL, to[i], NULL, group, FI_UINT64, FI_SUM, flags, cx));
			EVERY_MEMBER(fi_reduce(ep, from[i], 4, NULL, to[i], NULL, group, 0, FI_UINT64, FI_SUM, flags, cx));
			EVERY_MEMBER(fi_scatter(ep, from[i], 4, NULL, to[i], NULL, group, 0, FI_UINT64, flags, cx));
			EVERY_MEMBER(fi_gather(ep, from[i], 4, NULL, to[i], NULL, group, 0, FI_UINT64, flags, cx));
#undef EVERY_MEMBER
		}
		/* Each operation has one entry, and the joins have none. */
		for (int i = 0; i < n; i++)
			for (int turn = 0; turn < 50; turn++)
				EQUAL(fi_cq_read(members[i].n.cq, to, 1), -FI_EAGAIN);
		group_leave();
		group_end();
	}
}

/* An endpoint has neither a queue nor a counter for its transmissions. The provider warns once that nothing shows
 * the end of collective operations. */
static void unseen_completions(void)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_av_set_attr set_attr = {.start_addr = 0, .end_addr = 0, .stride = 1};
	struct member *m = &members[0];
	struct node *n = &m->n;
	size_t len = sizeof(n->name);
	char text[8192] = "";
	const char *words[] = {"nothing reports the end of collective operations", "FI_TRANSMIT"};
	many = 1;
	n->info = abi_info(&collective);
	EQUAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EQUAL(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EQUAL(fi_eq_open(n->fabric, &eq_attr, &m->eq, NULL), 0);
	EQUAL(fi_av_open(n->domain, &av_attr, &n->av, NULL), 0);
	EQUAL(fi_cq_open(n->domain, &cq_attr, &n->cq, NULL), 0);
	EQUAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EQUAL(fi_ep_bind(n->ep, &m->eq->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_RECV), 0);
	EQUAL(fi_enable(n->ep), 0);
	EQUAL(fi_getname(&n->ep->fid, &n->name, &len), 0);
	EQUAL(abi_insert(n, &n->name), 0);
	EQUAL(fi_av_set(n->av, &set_attr, &m->set, NULL), 0);
	EQUAL(fi_join_collective(n->ep, FI_ADDR_NOTAVAIL, m->set, 0, &m->mc, NULL), 0);
	group_joined(m, NULL);
	log_begin();
	for (int turn = 0; turn < 3; turn++) {
		EQUAL(fi_barrier(n->ep, m->group, NULL), 0);
		group_progress();
	}
	CHECK(pread(log_fd, text, sizeof(text) - 1, 0) >= 0);
	log_says(words, 2);
	const char *first = strstr(text, words[0]);
	CHECK(first && !strstr(first + 1, words[0]));
	group_leave();
	group_end();
}

/* Several joins of the same members run at once, and one group is left before its join has ended. */
static void joins_at_once(void)
{
	struct member first[MOST];
	for (int n = 2; n <= MOST; n++) {
		group_meet(n, &collective);
		/* The group is left at once: the next join must not receive messages of this one. */
		group_ask();
		group_leave();
		group_ask();
		memcpy(first, members, sizeof(first));
		group_ask();
		for (int i = 0; i < n; i++)
			group_joined(&first[i], &contexts[i]);
		for (int i = 0; i < n; i++) {
			group_joined(&members[i], &contexts[i]);
			CHECK(first[i].group != members[i].group);
		}
		for (int round = 0; round < 2; round++)
			for (int i = 0; i < n; i++) {
				EQUAL(fi_barrier(members[i].n.ep, first[i].group, &contexts[3]), 0);
				EQUAL(fi_barrier(members[i].n.ep, members[i].group, &contexts[3]), 0);
			}
		for (int turn = 0; turn < 4; turn++)
			group_done(&contexts[3]);
		group_leave();
		memcpy(members, first, sizeof(first));
		group_leave();
		group_end();
	}
}

/* Returns a UDP port that no process uses now. */
static int free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	close(fd);
	return ntohs(at.sin_port);
}

/* The size of a group of which one member restarts, and the number of joins of all members. */
enum { TRIO = 3, JOINS = 3 };

/* Runs a process of the group. The process publishes its name. Then, `times` times, it joins the members whose
 * names it reads, gathers, and leaves. */
static void member_process(int rank, int life, int times, int up, int down)
{
	struct member *m = &members[0];
	many = 1;
	group_open(m, &collective);
	CHECK(write(up, &m->n.name, sizeof(m->n.name)) == sizeof(m->n.name));
	for (; times > 0; times--, life++) {
		struct fi_av_set_attr none = {.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL};
		struct sockaddr_in names[TRIO];
		struct pollfd next = {.fd = down, .events = POLLIN};
		struct fi_cq_tagged_entry e;
		uint64_t mine = value(rank, (size_t)life), all_of[TRIO];
		double limit = abi_now() + PATIENCE;
		/* The process may have to retransmit its last packets. */
		while (poll(&next, 1, 1) == 0) {
			group_progress();
			CHECK(abi_now() < limit);
		}
		CHECK(read(down, names, sizeof(names)) == sizeof(names));
		EQUAL(fi_av_set(m->n.av, &none, &m->set, NULL), 0);
		for (int j = 0; j < TRIO; j++)
			EQUAL(fi_av_set_insert(m->set, abi_insert(&m->n, &names[j])), 0);
		EQUAL(fi_join_collective(m->n.ep, FI_ADDR_NOTAVAIL, m->set, 0, &m->mc, NULL), 0);
		group_joined(m, NULL);
		EQUAL(fi_allgather(m->n.ep, &mine, 1, NULL, all_of, NULL, m->group, FI_UINT64, 0, NULL), 0);
		EQUAL(group_next(m, &e), 1);
		for (int j = 0; j < TRIO; j++)
			CHECK(all_of[j] == value(j, (size_t)life));
		EQUAL(fi_close(&m->mc->fid), 0);
		EQUAL(fi_close(&m->set->fid), 0);
	}
	group_end();
	_exit(0);
}

/* Two members stay. The third one is a new process at the old address each time, which remembers none of the joins
 * before. */
static void a_member_restarts(void)
{
	int to_parent[TRIO][2], from_parent[TRIO][2], status;
	struct sockaddr_in names[TRIO];
	pid_t children[TRIO];
	char port[16];
	snprintf(port, sizeof(port), "%d", free_port());
	for (int i = 0; i < TRIO; i++)
		CHECK(pipe(to_parent[i]) == 0 && pipe(from_parent[i]) == 0);
	for (int i = 0; i < TRIO - 1; i++) {
		children[i] = fork();
		if (children[i] == 0)
			member_process(i, 0, JOINS, to_parent[i][1], from_parent[i][0]);
		CHECK(read(to_parent[i][0], &names[i], sizeof(names[i])) == sizeof(names[i]));
	}
	for (int life = 0; life < JOINS; life++) {
		int last = TRIO - 1;
		children[last] = fork();
		if (children[last] == 0) {
			setenv("FI_SQUALL_PORT", port, 1);
			member_process(last, life, 1, to_parent[last][1], from_parent[last][0]);
		}
		CHECK(read(to_parent[last][0], &names[last], sizeof(names[last])) == sizeof(names[last]));
		EQUAL(ntohs(names[last].sin_port), atoi(port));
		for (int i = 0; i < TRIO; i++)
			CHECK(write(from_parent[i][1], names, sizeof(names)) == sizeof(names));
		EQUAL(waitpid(children[last], &status, 0), children[last]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	for (int i = 0; i < TRIO - 1; i++) {
		EQUAL(waitpid(children[i], &status, 0), children[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

static const struct test tests[] = {
	TEST(every_operation, NULL, NULL, 0, {NULL}),
	TEST(every_type, NULL, NULL, 0, {NULL}),
	TEST(several_at_once, NULL, NULL, 0, {NULL}),
	TEST(sets, NULL, NULL, 0, {NULL}),
	TEST(bad_input, NULL, NULL, 0, {NULL}),
	TEST(a_member_dies, NULL, NULL, 0, {NULL}),
	TEST(joined_by_reading_events, NULL, NULL, 0, {NULL}),
	TEST(joined_beside_a_reader, NULL, NULL, 0, {NULL}),
	TEST(by_itself, NULL, NULL, 0, {NULL}),
	TEST(while_others_compute, NULL, NULL, 0, {"FI_SQUALL_ATTEND=5ms"}),
	TEST(selective_completion, NULL, NULL, 0, {NULL}),
	TEST(unseen_completions, NULL, NULL, 1, {NULL}),
	TEST(joins_at_once, NULL, NULL, 0, {NULL}),
	TEST(a_member_restarts, NULL, NULL, 0, {NULL}),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
