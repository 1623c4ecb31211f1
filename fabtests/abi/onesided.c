/* One-sided operations: atomics beside what C calculates, counters of what peers access, fences and order. */
#include "abi.h"
#include <complex.h>
#include <float.h>
#include <sys/mman.h>

#define KEY 7
#define ROOM 4096
/* Most values of a test. */
#define MANY 40

/* A target, and those that access it. */
static struct node a, b, c;
static fi_addr_t a_to_b, c_to_b;
static struct fid_mr *mr;
static _Alignas(64) unsigned char target[ROOM], operands[ROOM], compares[ROOM], results[ROOM];

static const uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

static void open_all(uint32_t version)
{
	struct want want = {.version = version, .threading = FI_THREAD_SAFE};
	abi_open(&a, &want);
	abi_open(&b, &want);
	abi_open(&c, &want);
	a_to_b = abi_insert(&a, &b.name);
	c_to_b = abi_insert(&c, &b.name);
	memset(target, 0, sizeof(target));
	EQUAL(fi_mr_reg(b.domain, target, sizeof(target), both, 0, KEY, 0, &mr, NULL), 0);
}

static void close_all(void)
{
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&a);
	abi_close(&b);
	abi_close(&c);
}

/* One value of any type. */
typedef unsigned char value[32];

/* What C makes of it; 0 when it stays. */
#define LOGIC(T, x, y)                                                                            \
	case FI_LOR: r = (T)((x) != 0 || (y) != 0); break;                                        \
	case FI_LAND: r = (T)((x) != 0 && (y) != 0); break;                                       \
	case FI_LXOR: r = (T)(((x) != 0) != ((y) != 0)); break;                                   \
	case FI_SUM: r = (T)((x) + (y)); break;                                                   \
	case FI_PROD: r = (T)((x) * (y)); break;                                                  \
	case 19 /* FI_DIFF */: r = (T)((x) - (y)); break;                                         \
	case FI_ATOMIC_WRITE: r = (y); break;                                                     \
	case FI_CSWAP: r = z == (x) ? (y) : (x); break;                                           \
	case FI_CSWAP_NE: r = z != (x) ? (y) : (x); break
#define ORDER(T, x, y)                                                                            \
	case FI_MIN: r = (y) < (x) ? (y) : (x); break;                                            \
	case FI_MAX: r = (y) > (x) ? (y) : (x); break;                                            \
	case FI_CSWAP_LE: r = z <= (x) ? (y) : (x); break;                                        \
	case FI_CSWAP_LT: r = z < (x) ? (y) : (x); break;                                         \
	case FI_CSWAP_GE: r = z >= (x) ? (y) : (x); break;                                        \
	case FI_CSWAP_GT: r = z > (x) ? (y) : (x); break
#define BITS(T, x, y)                                                                             \
	case FI_BOR: r = (T)((x) | (y)); break;                                                   \
	case FI_BAND: r = (T)((x) & (y)); break;                                                  \
	case FI_BXOR: r = (T)((x) ^ (y)); break;                                                  \
	case FI_MSWAP: r = (T)(((y) & z) | ((x) & ~z)); break

/* Behind the ten bytes of an x87 number are six that an assignment leaves as they were. */
static void no_padding(value v, size_t size, int extended)
{
	if (extended && LDBL_MANT_DIG == 64)
		for (size_t part = 0; part < size; part += sizeof(long double))
			memset((char *)v + part + 10, 0, sizeof(long double) - 10);
}

#define CALCULATION(name, T, ...)                                                                 \
	static void make_##name(value v, int n)                                                   \
	{                                                                                         \
		T x = (T)(n * n - 7 * n + 3);                                                     \
		memset(v, 0, sizeof(value));                                                      \
		memcpy(v, &x, sizeof(x));                                                         \
		no_padding(v, sizeof(x), _Generic(x, long double: 1, long double complex: 1, default: 0)); \
	}                                                                                         \
	static int same_##name(const void *v, const void *w)                                      \
	{                                                                                         \
		T x, y;                                                                           \
		memcpy(&x, v, sizeof(x));                                                         \
		memcpy(&y, w, sizeof(y));                                                         \
		return x == y;                                                                    \
	}                                                                                         \
	static void next_##name(int op, const value old, const value operand, const value compare, value new) \
	{                                                                                         \
		T x, y, z, r;                                                                     \
		memcpy(&x, old, sizeof(x));                                                       \
		memcpy(&y, operand, sizeof(y));                                                   \
		memcpy(&z, compare, sizeof(z));                                                   \
		r = x;                                                                            \
		switch (op) {                                                                     \
			__VA_ARGS__;                                                              \
		default: break;                                                                   \
		}                                                                                 \
		memset(new, 0, sizeof(value));                                                    \
		memcpy(new, &r, sizeof(r));                                                       \
	}

#define INTEGER(name, T) CALCULATION(name, T, LOGIC(T, x, y); ORDER(T, x, y); BITS(T, x, y))
#define REAL(name, T) CALCULATION(name, T, LOGIC(T, x, y); ORDER(T, x, y))
#define PAIR(name, T) CALCULATION(name, T, LOGIC(T, x, y))

INTEGER(i8, int8_t)
INTEGER(u8, uint8_t)
INTEGER(i16, int16_t)
INTEGER(u16, uint16_t)
INTEGER(i32, int32_t)
INTEGER(u32, uint32_t)
INTEGER(i64, int64_t)
INTEGER(u64, uint64_t)
INTEGER(i128, __int128)
INTEGER(u128, unsigned __int128)
REAL(f32, float)
REAL(f64, double)
REAL(f80, long double)
PAIR(c32, float complex)
PAIR(c64, double complex)
PAIR(c80, long double complex)

struct kind {
	size_t size;
	void (*make)(value, int);
	int (*same)(const void *, const void *);
	void (*next)(int, const value, const value, const value, value);
};

#define KIND(name, T) {sizeof(T), make_##name, same_##name, next_##name}
/* By enum fi_datatype; 2.x knows two more. */
static const struct kind kinds[] = {
	KIND(i8, int8_t), KIND(u8, uint8_t), KIND(i16, int16_t), KIND(u16, uint16_t), KIND(i32, int32_t),
	KIND(u32, uint32_t), KIND(i64, int64_t), KIND(u64, uint64_t), KIND(f32, float), KIND(f64, double),
	KIND(c32, float complex), KIND(c64, double complex), KIND(f80, long double), KIND(c80, long double complex),
	KIND(i128, __int128), KIND(u128, unsigned __int128),
};
#define KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))
#define OPERATIONS 25

enum family { BASE, FETCH, COMPARE, FAMILIES };
enum form { PLAIN, PIECES, MESSAGE, INJECTED, FORMS };

static int valid(enum family family, int type, int op, size_t *count)
{
	return family == BASE ? fi_atomicvalid(a.ep, type, op, count)
	     : family == FETCH ? fi_fetch_atomicvalid(a.ep, type, op, count)
			       : fi_compare_atomicvalid(a.ep, type, op, count);
}

/* Whether a call gives its operands back when it returns. FI_INJECT speaks of constant buffers alone (fi_atomic(3)), so it goes
 * with what brings values back, too. */
static int injected(enum form form, size_t n)
{
	return form == INJECTED || (form == MESSAGE && n % 2);
}

/* Cuts `n` values into two pieces; how many pieces there are. */
static size_t cut(struct fi_ioc *ioc, void *at, size_t n, size_t size)
{
	size_t first = n / 2;
	ioc[0] = (struct fi_ioc){at, first ? first : n};
	ioc[1] = (struct fi_ioc){(char *)at + first * size, n - first};
	return first ? 2 : 1;
}

static ssize_t call(enum family family, enum form form, int type, int op, size_t n)
{
	struct fi_ioc from[2], with[2], into[2];
	size_t size = kinds[type].size, half = n / 2;
	size_t pieces = cut(from, operands, n, size);
	cut(with, compares, n, size);
	cut(into, results, n, size);
	/* The remote ranges lie one behind the other. */
	struct fi_rma_ioc ranges[2] = {{0, half ? half : n, KEY}, {half * size, n - half, KEY}};
	struct fi_msg_atomic msg = {.msg_iov = from, .iov_count = pieces, .addr = a_to_b, .rma_iov = ranges,
				    .rma_iov_count = pieces, .datatype = type, .op = op, .context = &a};
	uint64_t flags = FI_COMPLETION | (n % 3 ? 0 : FI_FENCE) | (injected(form, n) ? FI_INJECT : 0);
	if (op == FI_ATOMIC_READ)
		msg.msg_iov = NULL, msg.iov_count = 0;
	void *own = op == FI_ATOMIC_READ ? NULL : operands;
	switch (family * FORMS + form) {
	case BASE * FORMS + PLAIN:
		return fi_atomic(a.ep, operands, n, NULL, a_to_b, 0, KEY, type, op, &a);
	case BASE * FORMS + PIECES:
		return fi_atomicv(a.ep, from, NULL, pieces, a_to_b, 0, KEY, type, op, &a);
	case BASE * FORMS + MESSAGE:
		return fi_atomicmsg(a.ep, &msg, flags);
	case BASE * FORMS + INJECTED:
		return fi_inject_atomic(a.ep, operands, n, a_to_b, 0, KEY, type, op);
	case FETCH * FORMS + PLAIN:
		return fi_fetch_atomic(a.ep, own, n, NULL, results, NULL, a_to_b, 0, KEY, type, op, &a);
	case FETCH * FORMS + PIECES:
		return fi_fetch_atomicv(a.ep, from, NULL, pieces, into, NULL, pieces, a_to_b, 0, KEY, type, op, &a);
	case FETCH * FORMS + MESSAGE:
		return fi_fetch_atomicmsg(a.ep, &msg, into, NULL, pieces, flags);
	case COMPARE * FORMS + PLAIN:
		return fi_compare_atomic(a.ep, operands, n, NULL, compares, NULL, results, NULL, a_to_b, 0, KEY, type,
					 op, &a);
	case COMPARE * FORMS + PIECES:
		return fi_compare_atomicv(a.ep, from, NULL, pieces, with, NULL, pieces, into, NULL, pieces, a_to_b, 0,
					  KEY, type, op, &a);
	default:
		return fi_compare_atomicmsg(a.ep, &msg, with, NULL, pieces, into, NULL, pieces, flags);
	}
}

/* One operation on `n` values, beside C. */
static void one(enum family family, enum form form, int type, int op, size_t n)
{
	const struct kind *k = &kinds[type];
	struct fi_cq_tagged_entry e;
	value old[MANY], with[MANY], against[MANY], new;
	for (size_t i = 0; i < n; i++) {
		k->make(old[i], (int)i);
		k->make(with[i], (int)(i * 3 % 11));
		k->make(against[i], (int)(i % 2 ? i : i + 1));
		memcpy(target + i * k->size, old[i], k->size);
		memcpy(operands + i * k->size, with[i], k->size);
		memcpy(compares + i * k->size, against[i], k->size);
	}
	memset(target + n * k->size, 0xee, 32);
	memset(results, 0xee, sizeof(results));
	RETRY(&a, call(family, form, type, op, n));
	if (form == INJECTED) {
		/* What comes behind a fence comes later. */
		struct fi_ioc into = {results, 1};
		struct fi_rma_ioc range = {ROOM - 32, 1, KEY};
		struct fi_msg_atomic msg = {.addr = a_to_b, .rma_iov = &range, .rma_iov_count = 1, .datatype = FI_UINT8,
					    .op = FI_ATOMIC_READ, .context = &a};
		RETRY(&a, fi_fetch_atomicmsg(a.ep, &msg, &into, NULL, 1, FI_FENCE));
	}
	/* The operands are free again when an injected one returns; others when they complete. */
	if (injected(form, n)) {
		memset(operands, 0x55, sizeof(operands));
		memset(compares, 0x55, sizeof(compares));
	}
	abi_expect(&a, &b, &e);
	CHECK(e.op_context == &a);
	EQUAL(e.flags, FI_ATOMIC | (family == BASE && form != INJECTED ? FI_WRITE : FI_READ));
	for (size_t i = 0; i < n; i++) {
		k->next(op, old[i], with[i], against[i], new);
		if (op == FI_ATOMIC_READ)
			memcpy(new, old[i], sizeof(new));
		if (!k->same(target + i * k->size, new))
			FAIL("type %d, operation %d, value %zu of %zu", type, op, i, n);
		if (family != BASE)
			CHECK(k->same(results + i * k->size, old[i]));
	}
	for (int i = 0; i < 32; i++)
		EQUAL(target[n * k->size + i], 0xee);
}

static void atomics_are_what_c_makes_of_them(void)
{
	open_all(FI_VERSION(1, 17));
	int there = 0;
	for (int type = 0; type < KINDS + 9; type++)
		for (int op = 0; op < OPERATIONS; op++)
			for (enum family family = 0; family < FAMILIES; family++) {
				struct fi_atomic_attr attr = {0};
				const uint64_t families[] = {0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};
				size_t count = 77;
				int rc = valid(family, type, op, &count);
				EQUAL(fi_query_atomic(b.domain, type, op, &attr, families[family]), rc);
				if (rc) {
					EQUAL(rc, -FI_EOPNOTSUPP);
					EQUAL(count, 0);
					if (type < KINDS)
						EQUAL(call(family, PLAIN, type, op, 1), -FI_EOPNOTSUPP);
					continue;
				}
				there++;
				CHECK(type < KINDS && op < 19);
				EQUAL(attr.count, count);
				EQUAL(attr.size, kinds[type].size);
				size_t most = count < MANY ? count : MANY;
				for (enum form form = 0; form < FORMS; form++) {
					if (form == INJECTED && family != BASE)
						continue;
					one(family, form, type, op, 1);
					one(family, form, type, op, 2 + (type + op) % 3);
					one(family, form, type, op, most);
				}
				EQUAL(call(family, PLAIN, type, op, count + 1), -FI_EMSGSIZE);
			}
	/* 16 types, 3 of them without an order and 10 of integers. */
	EQUAL(there, 2 * (6 * 16 + 2 * 13 + 3 * 10) + 16 + 2 * 16 + 4 * 13 + 10);
	close_all();
	/* A newer application knows more. */
	struct want want = {.version = FI_VERSION(2, 0)};
	if (FI_VERSION_GE(fi_version(), FI_VERSION(2, 0))) {
		abi_open(&a, &want);
		size_t count = 0;
		EQUAL(fi_atomicvalid(a.ep, FI_UINT64, 19, &count), 0);
		EQUAL(fi_atomicvalid(a.ep, 16, FI_SUM, &count), 0);
		EQUAL(count, 512);
		abi_close(&a);
	}
}

/* Two peers and the CPU add to the same values. */
static void *add_here(void *arg)
{
	for (int i = 0; i < 20000; i++)
		__atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void nobody_loses_a_change(void)
{
	enum { ROUNDS = 2000, HERE = 20000 };
	static uint64_t before[2][ROUNDS];
	static unsigned char seen[2 * ROUNDS + HERE];
	open_all(0);
	pthread_t thread;
	EQUAL(pthread_create(&thread, NULL, add_here, target), 0);
	const uint64_t add = 1;
	struct node *nodes[] = {&a, &c};
	fi_addr_t to[] = {a_to_b, c_to_b};
	int begun[2] = {0}, ended = 0;
	double end = abi_now() + PATIENCE;
	while (ended < 2 * ROUNDS) {
		for (int n = 0; n < 2; n++) {
			struct fi_cq_tagged_entry e;
			uint64_t *into = &before[n][begun[n]];
			if (begun[n] < ROUNDS && !fi_fetch_atomic(nodes[n]->ep, &add, 1, NULL, into, NULL, to[n], 0, KEY,
								  FI_UINT64, FI_SUM, into))
				begun[n]++;
			/* Each finds another value. */
			while (fi_cq_read(nodes[n]->cq, &e, 1) == 1) {
				uint64_t value = *(uint64_t *)e.op_context;
				CHECK(value < sizeof(seen) && !seen[value]++);
				ended++;
			}
		}
		(void)fi_cq_read(b.cq, NULL, 0);
		CHECK(abi_now() < end);
	}
	EQUAL(pthread_join(thread, NULL), 0);
	EQUAL(*(uint64_t *)target, 2 * ROUNDS + HERE);
	close_all();
}

static void bad_atomics_end_once_and_change_nothing(void)
{
	struct fi_cq_err_entry err;
	struct fi_cq_tagged_entry e;
	open_all(0);
	struct fid_mr *readable;
	static uint64_t constant = 5;
	EQUAL(fi_mr_reg(b.domain, &constant, 8, FI_REMOTE_READ, 0, 8, 0, &readable, NULL), 0);
	const struct {
		uint64_t addr, key;
		int errno_;
	} bad[] = {{0, 99, FI_EKEYREJECTED}, {ROOM - 7, KEY, FI_EKEYREJECTED}, {~0ull - 3, KEY, FI_EKEYREJECTED},
		   {4, KEY, FI_EINVAL}, {0, 8, FI_EKEYREJECTED}};
	uint64_t one = 1, result = 0x77;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		for (int fetch = 0; fetch < 2; fetch++) {
			if (fetch)
				RETRY(&a, fi_fetch_atomic(a.ep, &one, 1, NULL, &result, NULL, a_to_b, bad[i].addr,
							  bad[i].key, FI_UINT64, FI_SUM, &err));
			else
				RETRY(&a, fi_atomic(a.ep, &one, 1, NULL, a_to_b, bad[i].addr, bad[i].key, FI_UINT64,
						    FI_SUM, &err));
			abi_expect_error(&a, &b, &err);
			EQUAL(err.err, bad[i].errno_);
			CHECK(err.op_context == &err);
			EQUAL(result, 0x77);
		}
	for (int i = 0; i < ROOM; i++)
		EQUAL(target[i], 0);
	EQUAL(constant, 5);
	/* What may only be read may be read. */
	RETRY(&a, fi_fetch_atomic(a.ep, NULL, 1, NULL, &result, NULL, a_to_b, 0, 8, FI_UINT64, FI_ATOMIC_READ, NULL));
	abi_expect(&a, &b, &e);
	EQUAL(result, 5);
	/* Calls that cannot be. */
	struct fi_ioc iov = {&one, 1}, into = {&result, 1};
	struct fi_rma_ioc range = {0, 1, KEY};
	struct fi_msg_atomic msg = {.msg_iov = &iov, .iov_count = 1, .addr = a_to_b, .rma_iov = &range,
				    .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM};
	EQUAL(fi_atomicmsg(a.ep, &msg, FI_COMMIT_COMPLETE), -FI_EOPNOTSUPP);
	EQUAL(fi_atomicmsg(a.ep, &msg, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
	EQUAL(fi_atomicmsg(a.ep, &msg, FI_TAGGED), -FI_EBADFLAGS);
	EQUAL(fi_fetch_atomicmsg(a.ep, &msg, &into, NULL, 2000, 0), -FI_EINVAL);
	EQUAL(fi_fetch_atomicmsg(a.ep, &msg, NULL, NULL, 0, 0), -FI_EINVAL);
	EQUAL(fi_atomicmsg(a.ep, NULL, 0), -FI_EINVAL);
	EQUAL(fi_atomic(a.ep, NULL, 1, NULL, a_to_b, 0, KEY, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
	EQUAL(fi_atomic(a.ep, &one, 0, NULL, a_to_b, 0, KEY, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
	EQUAL(fi_atomic(a.ep, &one, SIZE_MAX / 4, NULL, a_to_b, 0, KEY, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
	msg.rma_iov_count = 0;
	EQUAL(fi_atomicmsg(a.ep, &msg, 0), -FI_EINVAL);
	RETRY(&a, fi_atomic(a.ep, &one, 1, NULL, a_to_b, 0, KEY, FI_UINT64, FI_SUM, NULL));
	abi_expect(&a, &b, &e);
	EQUAL(*(uint64_t *)target, 1);
	EQUAL(fi_close(&readable->fid), 0);
	close_all();
}

static struct fid_cntr *counter(struct node *n)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n->domain, &attr, &cntr, NULL), 0);
	return cntr;
}

/* Waits for a counter while others make progress, and sees to it that it does not pass the value. */
static void reaches(struct fid_cntr *cntr, uint64_t value)
{
	double end = abi_now() + PATIENCE;
	while (fi_cntr_read(cntr) < value) {
		(void)fi_cq_read(a.cq, NULL, 0);
		CHECK(abi_now() < end);
	}
	for (int i = 0; i < 1000; i++)
		(void)fi_cq_read(a.cq, NULL, 0);
	EQUAL(fi_cntr_read(cntr), value);
}

static void what_peers_access_is_counted(void)
{
	open_all(0);
	static unsigned char here[2000];
	struct fid_cntr *reads = counter(&b), *writes = counter(&b), *all = counter(&b), *own = counter(&a);
	EQUAL(fi_ep_bind(b.ep, &reads->fid, FI_REMOTE_READ), 0);
	EQUAL(fi_ep_bind(b.ep, &writes->fid, FI_REMOTE_WRITE), 0);
	EQUAL(fi_ep_bind(b.ep, &all->fid, both | FI_TAGGED), -FI_EBADFLAGS);
	EQUAL(fi_ep_bind(a.ep, &own->fid, both | FI_READ | FI_WRITE | FI_SEND | FI_RECV), 0);
	/* A region of its own, with a counter of its own. */
	struct fid_mr *counted;
	EQUAL(fi_mr_reg(b.domain, here, sizeof(here), both, 0, 9, 0, &counted, NULL), 0);
	EQUAL(fi_mr_bind(counted, &all->fid, FI_SEND), -FI_EBADFLAGS);
	/* Twice, for kinds of accesses that overlap: each access counts once. */
	EQUAL(fi_mr_bind(counted, &all->fid, FI_REMOTE_WRITE), 0);
	EQUAL(fi_mr_bind(counted, &all->fid, both), 0);
	EQUAL(fi_mr_enable(counted), 0);
	/* It is in use. */
	EQUAL(fi_close(&all->fid), -FI_EBUSY);
	uint64_t one = 1;
	for (int i = 0; i < 3; i++) {
		RETRY(&a, fi_write(a.ep, operands, 2000, NULL, a_to_b, 0, KEY, NULL));
		RETRY(&a, fi_inject_write(a.ep, operands, 8, a_to_b, 0, 9));
		RETRY(&a, fi_read(a.ep, results, 2000, NULL, a_to_b, 0, 9, NULL));
		RETRY(&a, fi_writedata(a.ep, operands, 0, NULL, 5, a_to_b, 0, KEY, NULL));
		RETRY(&a, fi_inject_atomic(a.ep, &one, 1, a_to_b, 0, 9, FI_UINT64, FI_BXOR));
		RETRY(&a, fi_fetch_atomic(a.ep, &one, 1, NULL, results + 2048, NULL, a_to_b, 0, 9, FI_UINT64, FI_BXOR,
					  NULL));
		RETRY(&a, fi_fetch_atomic(a.ep, NULL, 1, NULL, results + 2056, NULL, a_to_b, 0, KEY, FI_UINT64,
					  FI_ATOMIC_READ, NULL));
		/* Operations of several ranges, the last one in two regions. */
		struct iovec iov = {operands, 32};
		struct fi_rma_iov ranges[] = {{0, 8, 9}, {16, 8, 9}, {32, 8, 9}, {48, 8, 9}};
		struct fi_msg_rma msg = {.msg_iov = &iov, .iov_count = 1, .addr = a_to_b, .rma_iov = ranges, .rma_iov_count = 4, .data = 5};
		RETRY(&a, fi_writemsg(a.ep, &msg, FI_COMPLETION));
		RETRY(&a, fi_writemsg(a.ep, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA));
		ranges[2].key = KEY;
		RETRY(&a, fi_writemsg(a.ep, &msg, FI_COMPLETION));
		iov.iov_base = results;
		RETRY(&a, fi_readmsg(a.ep, &msg, FI_COMPLETION));
	}
	/* write, inject_write, writedata, the atomic that fetches nothing, three of several ranges */
	reaches(writes, 21);
	/* read, the two that fetch, one of several ranges */
	reaches(reads, 12);
	/* inject_write, read, two atomics, four of several ranges */
	reaches(all, 24);
	reaches(own, 33);
	EQUAL(fi_cntr_readerr(own), 0);
	EQUAL(fi_close(&counted->fid), 0);
	EQUAL(fi_close(&all->fid), 0);
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&c);
	struct node *nodes[] = {&a, &b};
	struct fid_cntr *cntrs[] = {own, reads, writes};
	for (int i = 0; i < 2; i++)
		EQUAL(fi_close(&nodes[i]->ep->fid), 0);
	for (int i = 0; i < 3; i++)
		EQUAL(fi_close(&cntrs[i]->fid), 0);
	for (int i = 0; i < 2; i++) {
		EQUAL(fi_close(&nodes[i]->cq->fid), 0);
		EQUAL(fi_close(&nodes[i]->av->fid), 0);
		EQUAL(fi_close(&nodes[i]->domain->fid), 0);
		EQUAL(fi_close(&nodes[i]->fabric->fid), 0);
		fi_freeinfo(nodes[i]->info);
	}
}

/* Operations of every kind, each fenced: their completions come in order. */
static void fences_keep_order(void)
{
	open_all(0);
	struct iovec iov = {operands, 1024};
	struct fi_rma_iov range = {0, 1024, KEY};
	struct fi_rma_ioc values = {2048, 2, KEY};
	struct fi_ioc from = {operands, 2}, into = {results, 2};
	struct fi_msg_rma rma = {.msg_iov = &iov, .iov_count = 1, .addr = a_to_b, .rma_iov = &range, .rma_iov_count = 1};
	struct fi_msg_atomic atomic = {.msg_iov = &from, .iov_count = 1, .addr = a_to_b, .rma_iov = &values,
				       .rma_iov_count = 1, .datatype = FI_INT64, .op = FI_SUM};
	enum { ROUNDS = 50 };
	for (uintptr_t i = 0; i < ROUNDS; i++) {
		struct fi_cq_tagged_entry e;
		memset(operands, (int)i + 1, sizeof(operands));
		rma.context = (void *)(4 * i + 1);
		RETRY(&a, fi_writemsg(a.ep, &rma, FI_COMPLETION));
		iov.iov_base = results;
		rma.context = (void *)(4 * i + 2);
		RETRY(&a, fi_readmsg(a.ep, &rma, FI_FENCE | FI_COMPLETION));
		iov.iov_base = operands;
		atomic.context = (void *)(4 * i + 3);
		RETRY(&a, fi_atomicmsg(a.ep, &atomic, FI_FENCE | FI_COMPLETION));
		atomic.context = (void *)(4 * i + 4);
		into.addr = results + 2048;
		RETRY(&a, fi_fetch_atomicmsg(a.ep, &atomic, &into, NULL, 1, FI_FENCE | FI_COMPLETION));
		for (uintptr_t k = 1; k <= 4; k++) {
			abi_expect(&a, &b, &e);
			EQUAL(e.op_context, 4 * i + k);
		}
		for (int n = 0; n < 1024; n++)
			EQUAL(results[n], i + 1);
	}
	close_all();
}

enum { PAGES = 16, PAGE = 4096, LARGE = PAGES * PAGE };

/* Other pages of the system where the region is, of one value each byte. */
static void other_pages(unsigned char *at, size_t len, int value)
{
	void *got = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(got == at);
	memset(at, value, len);
}

/* Reads the whole region, each half of which must have one value. */
static void peer_sees(int first, int second)
{
	static unsigned char seen[LARGE];
	struct fi_cq_tagged_entry e;
	memset(seen, 0, sizeof(seen));
	RETRY(&a, fi_read(a.ep, seen, sizeof(seen), NULL, a_to_b, 0, 9, NULL));
	abi_expect(&a, &b, &e);
	for (int i = 0; i < LARGE; i++)
		if (seen[i] != (i < LARGE / 2 ? first : second))
			FAIL("byte %d is %d", i, seen[i]);
	abi_checks++;
}

/* Writes the whole region, which must have changed when the write says that it is delivered. */
static void peer_changes(const unsigned char *region, int value)
{
	static unsigned char from[LARGE];
	struct fi_cq_tagged_entry e;
	struct iovec iov = {from, LARGE};
	struct fi_rma_iov range = {0, LARGE, 9};
	struct fi_msg_rma rma = {.msg_iov = &iov, .iov_count = 1, .addr = a_to_b, .rma_iov = &range, .rma_iov_count = 1};
	memset(from, value, sizeof(from));
	RETRY(&a, fi_writemsg(a.ep, &rma, FI_DELIVERY_COMPLETE | FI_COMPLETION));
	abi_expect(&a, &b, &e);
	CHECK(memcmp(region, from, LARGE) == 0);
}

/* The pages behind a region may change (fi_mr(3), fi_mr_refresh): peers meet the new ones, and a range of somewhere else is
 * an error that changes nothing. */
static void refreshed_regions(void)
{
	open_all(0);
	struct fid_mr *whole, *local, *two;
	unsigned char *at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	memset(at, 1, LARGE);
	EQUAL(fi_mr_reg(b.domain, at, LARGE, both, 0, 9, 0, &whole, NULL), 0);
	peer_sees(1, 1);
	/* All of it, without saying so and by saying so; a half of it; two ranges. */
	other_pages(at, LARGE, 2);
	EQUAL(fi_mr_refresh(whole, NULL, 0, 0), 0);
	peer_sees(2, 2);
	other_pages(at, LARGE, 3);
	struct iovec all = {at, LARGE}, halves[] = {{at, LARGE / 2}, {at + LARGE / 2, LARGE / 2}};
	EQUAL(fi_mr_refresh(whole, &all, 1, 0), 0);
	peer_sees(3, 3);
	other_pages(at + LARGE / 2, LARGE / 2, 4);
	EQUAL(fi_mr_refresh(whole, &halves[1], 1, 0), 0);
	peer_sees(3, 4);
	peer_changes(at, 5);
	other_pages(at, LARGE, 6);
	EQUAL(fi_mr_refresh(whole, halves, 2, 0), 0);
	peer_changes(at, 7);
	/* Ranges that it has not, before and behind it, one of them among good ones; flags; nothing where ranges are said to be. */
	struct iovec wrong[] = {{at, PAGE}, {at + LARGE - 1, 2}, {at - 1, 2}, {target, 8}, {at, SIZE_MAX}, {(void *)-1, 8}};
	for (int i = 1; i < 6; i++)
		EQUAL(fi_mr_refresh(whole, &wrong[i], 1, 0), -FI_EINVAL);
	EQUAL(fi_mr_refresh(whole, wrong, 2, 0), -FI_EINVAL);
	EQUAL(fi_mr_refresh(whole, NULL, 1, 0), -FI_EINVAL);
	EQUAL(fi_mr_refresh(whole, &all, 1, FI_MORE), -FI_EBADFLAGS);
	EQUAL(fi_control(&whole->fid, FI_REFRESH, NULL), -FI_EINVAL);
	peer_sees(7, 7);
	/* A region that no peer may access, and one of two pieces with a hole between them. */
	EQUAL(fi_mr_reg(b.domain, at, PAGE, FI_SEND | FI_RECV, 0, 10, 0, &local, NULL), 0);
	EQUAL(fi_mr_refresh(local, &wrong[0], 1, 0), 0);
	EQUAL(fi_mr_refresh(local, &all, 1, 0), -FI_EINVAL);
	struct iovec pieces[] = {{at, PAGE}, {at + 2 * PAGE, PAGE}}, hole = {at + PAGE, PAGE};
	EQUAL(fi_mr_regv(b.domain, pieces, 2, both, 0, 11, 0, &two, NULL), 0);
	EQUAL(fi_mr_refresh(two, pieces, 2, 0), 0);
	EQUAL(fi_mr_refresh(two, &hole, 1, 0), -FI_EINVAL);
	EQUAL(fi_close(&two->fid), 0);
	EQUAL(fi_close(&local->fid), 0);
	EQUAL(fi_close(&whole->fid), 0);
	munmap(at, LARGE);
	close_all();
}

int main(void)
{
	RUN(atomics_are_what_c_makes_of_them);
	RUN(nobody_loses_a_change);
	RUN(bad_atomics_end_once_and_change_nothing);
	RUN(what_peers_access_is_counted);
	RUN(fences_keep_order);
	RUN(refreshed_regions);
	printf("%d checks\n", abi_checks);
	return 0;
}
