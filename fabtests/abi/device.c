/* Memory of devices (FI_HMEM), with the stand-ins of fabtests/devices for the drivers' libraries: a pointer that the CPU
 * follows is the end of the process. Each test has a process; DEVICE says whose memory it is about. */
#define _GNU_SOURCE
#include "group.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MR_DMABUF (1ULL << 40)

struct dmabuf {
	int fd;
	uint64_t offset;
	size_t len;
	void *base_addr;
};

static const struct want hmem = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_HMEM,
	.mr_mode = FI_MR_HMEM,
};

static enum fi_hmem_iface iface;
static void (*fail)(int after, int count);
static unsigned long (*copies)(void);
static void *(*other_alloc)(size_t);
static void (*other_free)(void *);
static void (*other_copy)(void *, const void *, size_t);
static int (*cuda_alloc)(uint64_t *, size_t);
static int (*cuda_free)(uint64_t);
static int (*cuda_get)(void *, uint64_t, size_t);
static int (*cuda_put)(uint64_t, const void *, size_t);
static int (*cuda_context)(void **, unsigned, int);
static int (*cuda_end_context)(void *);
static int (*cuda_current)(void **);

static void *library;

static void *symbol(const char *name)
{
	void *found = dlsym(library, name);
	if (!found)
		FAIL("%s: %s", name, dlerror());
	return found;
}

/* Loads the stand-in that DEVICE names, as an application would. */
static void load(void)
{
	const char *which = getenv("DEVICE");
	int rocr = which && strcmp(which, "rocr") == 0, ze = which && strcmp(which, "ze") == 0;
	library = dlopen(rocr ? "libhsa-runtime64.so.1" : ze ? "libze_loader.so.1" : "libcuda.so.1", RTLD_NOW);
	if (!library)
		FAIL("%s (LD_LIBRARY_PATH is to name the directory of the stand-ins)", dlerror());
	iface = rocr ? FI_HMEM_ROCR : ze ? FI_HMEM_ZE : FI_HMEM_CUDA;
	fail = symbol("standin_fail");
	copies = symbol("standin_copies");
	if (iface != FI_HMEM_CUDA) {
		other_alloc = symbol("standin_alloc");
		other_free = symbol("standin_free");
		other_copy = symbol("standin_copy");
		return;
	}
	int (*init)(unsigned) = symbol("cuInit");
	int (*primary)(void **, int) = symbol("cuDevicePrimaryCtxRetain");
	int (*push)(void *) = symbol("cuCtxPushCurrent_v2");
	void *context;
	cuda_alloc = symbol("cuMemAlloc_v2");
	cuda_free = symbol("cuMemFree_v2");
	cuda_get = symbol("cuMemcpyDtoH_v2");
	cuda_put = symbol("cuMemcpyHtoD_v2");
	cuda_context = symbol("cuCtxCreate_v2");
	cuda_end_context = symbol("cuCtxDestroy_v2");
	cuda_current = symbol("cuCtxGetCurrent");
	EQUAL(init(0), 0);
	EQUAL(primary(&context, 0), 0);
	EQUAL(push(context), 0);
}

/* A buffer, of the device or of the host, registered, with what a test needs to know of it. */
struct buffer {
	unsigned char *at;
	size_t len;
	int device;
	struct fid_mr *mr;
	void *desc;
};

static unsigned char *dev_alloc(size_t len)
{
	uint64_t at = 0;
	if (iface != FI_HMEM_CUDA)
		return other_alloc(len);
	EQUAL(cuda_alloc(&at, len), 0);
	return (unsigned char *)(uintptr_t)at;
}

static void put(const struct buffer *b, size_t at, const void *from, size_t len)
{
	if (!b->device)
		memcpy(b->at + at, from, len);
	else if (iface == FI_HMEM_CUDA)
		EQUAL(cuda_put((uint64_t)(uintptr_t)b->at + at, from, len), 0);
	else
		other_copy(b->at + at, from, len);
}

static void get(const struct buffer *b, size_t at, void *to, size_t len)
{
	if (!b->device)
		memcpy(to, b->at + at, len);
	else if (iface == FI_HMEM_CUDA)
		EQUAL(cuda_get(to, (uint64_t)(uintptr_t)b->at + at, len), 0);
	else
		other_copy(to, b->at + at, len);
}

static int registering(struct node *n, struct buffer *b, uint64_t key, int ordinal, uint64_t flags)
{
	struct iovec iov = {b->at, b->len};
	struct fi_mr_attr attr = {
		.mr_iov = &iov,
		.iov_count = 1,
		.access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
		.requested_key = key,
		.iface = b->device ? iface : FI_HMEM_SYSTEM,
	};
	attr.device.cuda = ordinal;
	return fi_mr_regattr(n->domain, &attr, flags, &b->mr);
}

static void make(struct node *n, struct buffer *b, size_t len, int device, uint64_t key)
{
	*b = (struct buffer){.len = len, .device = device};
	b->at = device ? dev_alloc(len) : malloc(len);
	CHECK(b->at != NULL);
	EQUAL(registering(n, b, key, 0, device ? FI_HMEM_DEVICE_ONLY : 0), 0);
	b->desc = fi_mr_desc(b->mr);
	CHECK(b->desc != NULL);
}

static void unmake(struct buffer *b)
{
	EQUAL(fi_close(&b->mr->fid), 0);
	if (!b->device)
		free(b->at);
	else if (iface == FI_HMEM_CUDA)
		EQUAL(cuda_free((uint64_t)(uintptr_t)b->at), 0);
	else
		other_free(b->at);
}

static unsigned char scratch[6 << 20], seen[6 << 20];

static void fill(const struct buffer *b, size_t len, unsigned seed)
{
	abi_fill(scratch, len, seed);
	put(b, 0, scratch, len);
}

static void verify(const struct buffer *b, size_t at, size_t len, unsigned seed)
{
	get(b, at, seen, len);
	abi_verify(seen, len, seed);
}

static void blank(const struct buffer *b)
{
	memset(scratch, 0xEE, b->len);
	put(b, 0, scratch, b->len);
}

/* Nothing was written there. */
static void untouched(const struct buffer *b)
{
	get(b, 0, seen, b->len);
	for (size_t i = 0; i < b->len; i++)
		if (seen[i] != 0xEE)
			FAIL("byte %zu of %zu was changed", i, b->len);
	abi_checks++;
}

static void *cx_of(int member)
{
	return &contexts[10 + member];
}

static void begin(void)
{
	load();
	open_pair(&hmem);
}

static void end(void)
{
	abi_close(&a);
	abi_close(&b);
}

static const size_t sizes[] = {1, 64, 4000, 8192, 8193, 70000, 1 << 20, 5000003};
#define SIZES (sizeof(sizes) / sizeof(*sizes))
#define LONGEST 5000003

static void offered_to_who_asks(void)
{
	struct fi_info *info, *hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("squall");
	hints->domain_attr->mr_mode = FI_MR_HMEM;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	CHECK(!(info->caps & FI_HMEM) && !(info->domain_attr->mr_mode & FI_MR_HMEM));
	fi_freeinfo(info);
	hints->caps = FI_TAGGED | FI_HMEM;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	CHECK(info->caps & FI_HMEM && info->tx_attr->caps & FI_HMEM && info->rx_attr->caps & FI_HMEM);
	EQUAL(info->domain_attr->mr_mode, FI_MR_HMEM);
	fi_freeinfo(info);
	/* Memory is known by its descriptors, so there must be such. */
	hints->domain_attr->mr_mode = 0;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	fi_freeinfo(hints);
}

static void not_offered(void)
{
	struct fi_info *info, *hints = fi_allocinfo();
	hints->fabric_attr->prov_name = strdup("squall");
	hints->domain_attr->mr_mode = FI_MR_HMEM;
	hints->caps = FI_TAGGED | FI_HMEM;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	hints->caps = FI_TAGGED;
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void missing_driver(void)
{
	not_offered();
}

static void broken_driver(void)
{
	const char *words[] = {"device memory of CUDA is not supported: cuInit"};
	log_begin();
	not_offered();
	char text[8192] = "";
	CHECK(pread(log_fd, text, sizeof(text) - 1, 0) >= 0);
	log_says(words, 1);
	/* Once. */
	CHECK(!strstr(strstr(text, words[0]) + 1, words[0]));
}

static void driver_without_device(void)
{
	const char *words[] = {"device memory of CUDA is not supported: it has no device"};
	log_begin();
	not_offered();
	log_says(words, 1);
}

static void messages(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer from[2], to[2];
	begin();
	for (int device = 0; device < 2; device++) {
		make(&a, &from[device], LONGEST, device, 1 + device);
		make(&b, &to[device], LONGEST, device, 1 + device);
	}
	unsigned seed = 0;
	for (size_t i = 0; i < SIZES; i++)
		/* From and to host and device, expected and not, tagged or with data. */
		for (int kind = 0; kind < 16; kind++) {
			struct buffer *f = &from[kind & 1], *t = &to[kind >> 1 & 1];
			int early = kind >> 2 & 1, tagged = kind >> 3 & 1;
			size_t len = sizes[i];
			if (!f->device && !t->device)
				continue;
			fill(f, len, ++seed);
			blank(t);
			for (int step = 0; step < 2; step++) {
				if (step == early) {
					if (tagged)
						EQUAL(fi_trecv(b.ep, t->at, len, t->desc, FI_ADDR_UNSPEC, 7, 0, &contexts[0]), 0);
					else
						EQUAL(fi_recv(b.ep, t->at, len, t->desc, FI_ADDR_UNSPEC, &contexts[0]), 0);
				} else if (tagged) {
					RETRY(&a, fi_tsend(a.ep, f->at, len, f->desc, to_b, 7, &contexts[1]));
				} else {
					RETRY(&a, fi_senddata(a.ep, f->at, len, f->desc, 99, to_b, &contexts[1]));
				}
				if (early)
					turns(200);
			}
			abi_expect(&b, &a, &e);
			CHECK(e.op_context == &contexts[0] && e.len == len && e.flags & FI_RECV);
			/* What is shown is the application's own. */
			if (!tagged)
				CHECK(e.data == 99 && e.flags & FI_REMOTE_CQ_DATA);
			verify(t, 0, len, seed);
			abi_expect(&a, &b, &e);
			CHECK(e.op_context == &contexts[1] && e.flags & FI_SEND);
		}
	CHECK(copies() > 0);
	for (int device = 0; device < 2; device++) {
		unmake(&from[device]);
		unmake(&to[device]);
	}
	end();
}

/* Pieces of host and device in one message, on both sides, and injected. */
static void pieces(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer from, to, host;
	begin();
	make(&a, &from, 60000, 1, 1);
	make(&b, &to, 60000, 1, 1);
	make(&a, &host, 60000, 0, 2);
	static unsigned char there[60000];
	for (int inject = 0; inject < 2; inject++) {
		size_t third = inject ? 700 : 20000;
		abi_fill(scratch, 3 * third, 5 + inject);
		put(&from, 0, scratch, third);
		put(&host, 0, scratch + third, third);
		put(&from, 30000, scratch + 2 * third, third);
		struct iovec iov[3] = {{from.at, third}, {host.at, third}, {from.at + 30000, third}};
		void *desc[3] = {from.desc, host.desc, from.desc};
		struct iovec into[2] = {{there, third / 2}, {to.at + 100, 3 * third}};
		void *into_desc[2] = {NULL, to.desc};
		EQUAL(fi_recvv(b.ep, into, into_desc, 2, FI_ADDR_UNSPEC, NULL), 0);
		struct fi_msg msg = {.msg_iov = iov, .desc = desc, .iov_count = 3, .addr = to_b};
		RETRY(&a, fi_sendmsg(a.ep, &msg, FI_COMPLETION | (inject ? FI_INJECT : 0)));
		if (inject) {
			/* The buffers are ours again. */
			memset(scratch, 0xEE, third);
			put(&from, 0, scratch, third);
			put(&host, 0, scratch, third);
			put(&from, 30000, scratch, third);
		}
		abi_expect(&b, &a, &e);
		EQUAL(e.len, 3 * third);
		abi_expect(&a, &b, &e);
		memcpy(seen, there, third / 2);
		get(&to, 100, seen + third / 2, 3 * third - third / 2);
		abi_verify(seen, 3 * third, 5 + inject);
	}
	unmake(&from);
	unmake(&to);
	unmake(&host);
	end();
}

/* What comes after a copy that takes its time does not overtake it. */
static void order(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer from[2], to;
	begin();
	make(&a, &from[0], 64, 0, 1);
	make(&a, &from[1], 64 * 4096, 1, 2);
	make(&b, &to, 64 * 8, 1, 1);
	for (int n = 0; n < 64; n++)
		EQUAL(fi_recv(b.ep, to.at + 8 * n, 8, to.desc, FI_ADDR_UNSPEC, &contexts[n]), 0);
	for (uint64_t n = 0; n < 64; n++) {
		if (n % 3 == 0) {
			put(&from[1], 4096 * n, &n, 8);
			RETRY(&a, fi_send(a.ep, from[1].at + 4096 * n, 8, from[1].desc, to_b, NULL));
		} else {
			/* Injected: the buffer is used again at once. */
			memcpy(from[0].at, &n, 8);
			RETRY(&a, fi_inject(a.ep, from[0].at, 8, to_b));
		}
	}
	for (int n = 0; n < 64; n++)
		abi_expect(&b, &a, &e);
	get(&to, 0, seen, sizeof(seen) < 512 ? 0 : 512);
	for (uint64_t n = 0; n < 64; n++)
		CHECK(memcmp(seen + 8 * n, &n, 8) == 0);
	for (int n = 0; n < 64; n += 3)
		abi_expect(&a, &b, &e);
	unmake(&from[0]);
	unmake(&from[1]);
	unmake(&to);
	end();
}

/* Too long, several in one buffer, looked at and claimed, cancelled. */
static void receives(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct buffer from, to;
	begin();
	make(&a, &from, 10000, 1, 1);
	make(&b, &to, 10000, 1, 1);
	fill(&from, 10000, 1);
	blank(&to);
	EQUAL(fi_recv(b.ep, to.at, 6000, to.desc, FI_ADDR_UNSPEC, &contexts[3]), 0);
	RETRY(&a, fi_send(a.ep, from.at, 9000, from.desc, to_b, NULL));
	abi_expect_error(&b, &a, &err);
	CHECK(err.err == FI_ETRUNC && err.len == 6000 && err.olen == 3000 && err.op_context == &contexts[3]);
	verify(&to, 0, 6000, 1);
	get(&to, 6000, seen, 1);
	EQUAL(seen[0], 0xEE);
	abi_expect(&a, &b, &e);

	struct iovec iov = {to.at, 10000};
	struct fi_msg msg = {.msg_iov = &iov, .desc = &to.desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[4]};
	size_t least = 3000;
	EQUAL(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
	EQUAL(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV | FI_COMPLETION), 0);
	for (int n = 0; n < 4; n++) {
		fill(&from, 2000, 10 + n);
		RETRY(&a, fi_send(a.ep, from.at, 2000, from.desc, to_b, NULL));
		abi_expect(&b, &a, &e);
		CHECK(e.op_context == &contexts[4] && e.len == 2000);
		EQUAL((unsigned char *)e.buf - to.at, 2000 * n);
		EQUAL(!!(e.flags & FI_MULTI_RECV), n == 3);
		verify(&to, 2000 * (size_t)n, 2000, 10 + (unsigned)n);
		abi_expect(&a, &b, &e);
	}

	fill(&from, 5000, 20);
	blank(&to);
	RETRY(&a, fi_tsend(a.ep, from.at, 5000, from.desc, to_b, 5, NULL));
	struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = 5, .context = &contexts[5]};
	struct fi_context held;
	peek.context = &held;
	for (;;) {
		EQUAL(fi_trecvmsg(b.ep, &peek, FI_PEEK | FI_CLAIM | FI_COMPLETION), 0);
		if (abi_next(&b, &a, &e) == 1)
			break;
		fi_cq_readerr(b.cq, &err, 0);
		EQUAL(err.err, FI_ENOMSG);
		turns(1);
	}
	peek.msg_iov = &iov;
	peek.desc = &to.desc;
	peek.iov_count = 1;
	EQUAL(fi_trecvmsg(b.ep, &peek, FI_CLAIM | FI_COMPLETION), 0);
	abi_expect(&b, &a, &e);
	CHECK(e.op_context == &held && e.len == 5000);
	verify(&to, 0, 5000, 20);
	abi_expect(&a, &b, &e);

	blank(&to);
	EQUAL(fi_trecv(b.ep, to.at, 100, to.desc, FI_ADDR_UNSPEC, 6, 0, &contexts[6]), 0);
	EQUAL(fi_cancel(&b.ep->fid, &contexts[6]), 0);
	abi_expect_error(&b, &a, &err);
	CHECK(err.err == FI_ECANCELED && err.op_context == &contexts[6]);
	untouched(&to);
	unmake(&from);
	unmake(&to);
	end();
}

static void remote_memory(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer here[2], there[2];
	begin();
	for (int device = 0; device < 2; device++) {
		make(&a, &here[device], LONGEST, device, 1 + device);
		make(&b, &there[device], LONGEST + 10, device, 1 + device);
	}
	unsigned seed = 0;
	for (size_t i = 0; i < SIZES; i++)
		for (int kind = 1; kind < 4; kind++) {
			struct buffer *h = &here[kind & 1], *t = &there[kind >> 1 & 1];
			size_t len = sizes[i];
			fill(h, len, ++seed);
			blank(t);
			RETRY(&a, fi_write(a.ep, h->at, len, h->desc, to_b, 5, fi_mr_key(t->mr), NULL));
			abi_expect(&a, &b, &e);
			CHECK(e.flags & FI_WRITE);
			verify(t, 5, len, seed);
			get(t, 0, seen, 5);
			CHECK(seen[0] == 0xEE && seen[4] == 0xEE);
			get(t, len + 5, seen, 5);
			CHECK(seen[0] == 0xEE && seen[4] == 0xEE);
			blank(h);
			RETRY(&a, fi_read(a.ep, h->at, len, h->desc, to_b, 5, fi_mr_key(t->mr), &contexts[9]));
			abi_expect(&a, &b, &e);
			CHECK(e.flags & FI_READ && e.op_context == &contexts[9]);
			verify(h, 0, len, seed);
			if (len > 8192)
				continue;
			fill(h, len, ++seed);
			struct iovec iov = {h->at, len};
			struct fi_rma_iov remote = {0, len, fi_mr_key(t->mr)};
			struct fi_msg_rma msg = {.msg_iov = &iov, .desc = &h->desc, .iov_count = 1, .addr = to_b,
						 .rma_iov = &remote, .rma_iov_count = 1, .data = 77};
			RETRY(&a, fi_writemsg(a.ep, &msg, FI_INJECT | FI_REMOTE_CQ_DATA | FI_COMPLETION));
			blank(h);
			abi_expect(&b, &a, &e);
			CHECK(e.data == 77 && e.flags & FI_REMOTE_WRITE);
			verify(t, 0, len, seed);
			abi_expect(&a, &b, &e);
		}
	for (int device = 0; device < 2; device++) {
		unmake(&here[device]);
		unmake(&there[device]);
	}
	end();
}

static void atomics(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer here[2], there[2];
	begin();
	for (int device = 0; device < 2; device++) {
		make(&a, &here[device], 4096, device, 1 + device);
		make(&b, &there[device], 4096, device, 1 + device);
	}
	for (int kind = 1; kind < 4; kind++) {
		struct buffer *h = &here[kind & 1], *t = &there[kind >> 1 & 1];
		uint64_t values[4] = {100, 200, 300, 400}, add[4] = {1, 2, 3, 4}, found[4], key = fi_mr_key(t->mr);
		put(t, 0, values, 32);
		put(h, 0, add, 32);
		RETRY(&a, fi_atomic(a.ep, h->at, 4, h->desc, to_b, 0, key, FI_UINT64, FI_SUM, NULL));
		abi_expect(&a, &b, &e);
		RETRY(&a, fi_fetch_atomic(a.ep, h->at, 4, h->desc, h->at + 64, h->desc, to_b, 0, key, FI_UINT64, FI_SUM, NULL));
		abi_expect(&a, &b, &e);
		get(h, 64, found, 32);
		for (uint64_t i = 0; i < 4; i++)
			EQUAL(found[i], values[i] + add[i]);
		uint64_t expected[4] = {102, 204, 0, 408}, new[4] = {7, 8, 9, 10};
		put(h, 128, expected, 32);
		put(h, 192, new, 32);
		RETRY(&a, fi_compare_atomic(a.ep, h->at + 192, 4, h->desc, h->at + 128, h->desc, h->at + 256, h->desc, to_b, 0,
					    key, FI_UINT64, FI_CSWAP, NULL));
		abi_expect(&a, &b, &e);
		get(h, 256, found, 32);
		for (uint64_t i = 0; i < 4; i++)
			EQUAL(found[i], values[i] + 2 * add[i]);
		get(t, 0, found, 32);
		CHECK(found[0] == 7 && found[1] == 8 && found[2] == 306 && found[3] == 10);
		/* 16 bytes, which no instruction of the CPU's changes at once either. */
		double complex_[2] = {1.5, 2.5};
		put(t, 512, complex_, 16);
		put(h, 512, complex_, 16);
		RETRY(&a, fi_atomic(a.ep, h->at + 512, 1, h->desc, to_b, 512, key, FI_DOUBLE_COMPLEX, FI_SUM, NULL));
		abi_expect(&a, &b, &e);
		get(t, 512, complex_, 16);
		CHECK(complex_[0] == 3.0 && complex_[1] == 5.0);
	}
	for (int device = 0; device < 2; device++) {
		unmake(&here[device]);
		unmake(&there[device]);
	}
	end();
}

/* The driver fails: the operation ends with an error, its target is as it was, and all goes on. */
static void copies_that_fail(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct buffer from, to, host;
	begin();
	make(&a, &from, 2000000, 1, 1);
	make(&b, &to, 2000000, 1, 1);
	make(&a, &host, 2000000, 0, 2);
	/* The first two are pinned, so that it fails later than at the call. */
	size_t lens[] = {64, 70000, 2000000};
	meet();
	for (int i = 0; i < 3; i++) {
		size_t len = lens[i];
		blank(&to);
		fill(&from, len, 1);
		fill(&host, len, 2);
		/* Sent: nothing leaves. */
		EQUAL(fi_recv(b.ep, to.at, len, to.desc, FI_ADDR_UNSPEC, &contexts[1]), 0);
		fail(0, 1);
		RETRY(&a, fi_send(a.ep, from.at, len, from.desc, to_b, &contexts[0]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.err == FI_EIO && err.op_context == &contexts[0] && err.flags & FI_SEND);
		turns(200);
		untouched(&to);
		/* The receive is still there, and its copy fails. */
		fail(0, 1);
		RETRY(&a, fi_send(a.ep, host.at, len, host.desc, to_b, NULL));
		abi_expect_error(&b, &a, &err);
		CHECK(err.err == FI_EIO && err.op_context == &contexts[1] && err.flags & FI_RECV);
		abi_expect(&a, &b, &e);
		untouched(&to);
		/* Written: by the initiator's driver, then the target's. */
		fail(0, 1);
		RETRY(&a, fi_write(a.ep, from.at, len, from.desc, to_b, 0, fi_mr_key(to.mr), &contexts[2]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.err == FI_EIO && err.op_context == &contexts[2]);
		untouched(&to);
		fail(0, 10000);
		RETRY(&a, fi_write(a.ep, host.at, len, host.desc, to_b, 0, fi_mr_key(to.mr), &contexts[2]));
		abi_expect_error(&a, &b, &err);
		fail(0, 0);
		CHECK(err.err == FI_EREMOTEIO && err.op_context == &contexts[2]);
		untouched(&to);
		/* Read: by the target's, then the initiator's. */
		fail(0, 1);
		RETRY(&a, fi_read(a.ep, host.at, len, host.desc, to_b, 0, fi_mr_key(to.mr), &contexts[3]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.err == FI_EREMOTEIO && err.op_context == &contexts[3]);
		verify(&host, 0, len, 2);
		fail(1, 1);
		RETRY(&a, fi_read(a.ep, from.at, len, from.desc, to_b, 0, fi_mr_key(to.mr), &contexts[3]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.err == FI_EIO && err.op_context == &contexts[3]);
		verify(&from, 0, len, 1);
		/* Atomics. */
		fail(0, 1);
		RETRY(&a, fi_atomic(a.ep, host.at, 1, host.desc, to_b, 0, fi_mr_key(to.mr), FI_UINT64, FI_SUM, NULL));
		abi_expect_error(&a, &b, &err);
		EQUAL(err.err, FI_EREMOTEIO);
		untouched(&to);
		/* And now all is well. */
		RETRY(&a, fi_write(a.ep, from.at, len, from.desc, to_b, 0, fi_mr_key(to.mr), NULL));
		abi_expect(&a, &b, &e);
		verify(&to, 0, len, 1);
	}
	/* Beyond the allocation: the driver says so. */
	RETRY(&a, fi_send(a.ep, from.at + from.len - 10, 100000, from.desc, to_b, &contexts[0]));
	abi_expect_error(&a, &b, &err);
	EQUAL(err.err, FI_EIO);
	unmake(&from);
	unmake(&to);
	unmake(&host);
	end();
}

/* Contexts: memory of one that is not the primary one; the thread's own stays; one that is destroyed. */
static void contexts_of_the_application(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct buffer from, to;
	void *mine, *now;
	begin();
	EQUAL(cuda_context(&mine, 0, 0), 0);
	make(&a, &from, 100000, 1, 1);
	make(&b, &to, 100000, 1, 1);
	fill(&from, 100000, 3);
	EQUAL(fi_recv(b.ep, to.at, 100000, to.desc, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a, fi_send(a.ep, from.at, 100000, from.desc, to_b, NULL));
	abi_expect(&b, &a, &e);
	abi_expect(&a, &b, &e);
	verify(&to, 0, 100000, 3);
	EQUAL(cuda_current(&now), 0);
	CHECK(now == mine);
	EQUAL(cuda_end_context(mine), 0);
	RETRY(&a, fi_send(a.ep, from.at, 100000, from.desc, to_b, NULL));
	abi_expect_error(&a, &b, &err);
	EQUAL(err.err, FI_EIO);
	EQUAL(fi_close(&from.mr->fid), 0);
	EQUAL(fi_close(&to.mr->fid), 0);
	end();
}

/* What cannot be is refused by name. */
static void refusals(void)
{
	begin();
	struct buffer d = {.at = dev_alloc(100), .len = 100, .device = 1};
	enum fi_hmem_iface served = iface;
	if (served == FI_HMEM_CUDA)
		EQUAL(registering(&a, &d, 1, 1, 0), -FI_EINVAL);
	if (served == FI_HMEM_ZE)
		EQUAL(registering(&a, &d, 1, 2, 0), -FI_EINVAL);
	iface = FI_HMEM_NEURON;
	EQUAL(registering(&a, &d, 1, 0, 0), -FI_ENOSYS);
	iface = FI_HMEM_SYNAPSEAI;
	EQUAL(registering(&a, &d, 1, 0, 0), -FI_ENOSYS);
	iface = served;
	struct buffer nowhere = {.at = buf, .len = 100, .device = 1};
	if (served != FI_HMEM_ZE)
		EQUAL(registering(&a, &nowhere, 1, 0, 0), -FI_EINVAL);
	struct fid_mr *mr;
	EQUAL(fi_mr_reg(a.domain, buf, 10, FI_SEND, 0, 0, FI_HMEM_DEVICE_ONLY, &mr, NULL), -FI_EBADFLAGS);
	/* What the driver has allocated of the host's memory is the host's. */
	struct buffer host_alloc = {.at = buf, .len = 100, .device = 1};
	EQUAL(registering(&a, &host_alloc, 9, 0, FI_HMEM_HOST_ALLOC), 0);
	EQUAL(fi_close(&host_alloc.mr->fid), 0);
	/* Nothing is peer to peer. */
	int mode = FI_HMEM_P2P_REQUIRED;
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof(mode)), -FI_EOPNOTSUPP);
	for (mode = 0; mode < 4; mode++)
		if (mode != FI_HMEM_P2P_REQUIRED)
			EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof(mode)), 0);
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof(mode)), -FI_EINVAL);
	unsigned char permitted = 1;
	const int cuda_api_permitted = 10;
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, cuda_api_permitted, &permitted, 1), 0);
	permitted = 0;
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, cuda_api_permitted, &permitted, 1), -FI_EOPNOTSUPP);
	/* A domain without FI_HMEM, and an endpoint of it with a descriptor of another's. */
	struct node c;
	abi_open(&c, &plain);
	EQUAL(registering(&c, &d, 1, 0, 0), -FI_ENOSYS);
	EQUAL(registering(&a, &d, 1, 0, 0), 0);
	fi_addr_t from_c = abi_insert(&c, &b.name);
	EQUAL(fi_send(c.ep, d.at, 100, fi_mr_desc(d.mr), from_c, NULL), -FI_EINVAL);
	EQUAL(fi_recv(c.ep, d.at, 100, fi_mr_desc(d.mr), FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	/* Arguments that make no sense are refused at the call, before anything is copied. */
	uint64_t key = fi_mr_key(d.mr);
	struct iovec iov = {d.at, 100};
	void *desc = fi_mr_desc(d.mr);
	struct fi_rma_iov remote = {0, 99, key};
	struct fi_msg_rma msg = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = to_b, .rma_iov = &remote, .rma_iov_count = 1};
	unsigned long before = copies();
	EQUAL(fi_writemsg(a.ep, &msg, 0), -FI_EINVAL);
	EQUAL(copies(), before);
	abi_close(&c);
	EQUAL(fi_close(&d.mr->fid), 0);
	end();
}

/* An endpoint is closed, and then its region, while copies are under way. */
static void closed_in_flight(void)
{
	struct buffer from, to;
	begin();
	make(&a, &from, 1 << 20, 1, 1);
	make(&b, &to, 1 << 20, 1, 1);
	for (int n = 0; n < 10; n++) {
		EQUAL(fi_recv(b.ep, to.at, 100000, to.desc, FI_ADDR_UNSPEC, NULL), 0);
		RETRY(&a, fi_send(a.ep, from.at, 100000, from.desc, to_b, NULL));
	}
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&b.ep->fid), 0);
	unmake(&from);
	unmake(&to);
	EQUAL(fi_close(&a.cq->fid), 0);
	EQUAL(fi_close(&b.cq->fid), 0);
}

/* DMA-bufs: a file of memory passes for one as long as the two calls of its kind are answered. */
static int pretended = -1, syncs;

int ioctl(int fd, unsigned long request, ...)
{
	va_list more;
	va_start(more, request);
	void *arg = va_arg(more, void *);
	va_end(more);
	struct stat pretended_file, file;
	if (request == 0x40086200 && pretended >= 0 && fstat(pretended, &pretended_file) == 0 && fstat(fd, &file) == 0 &&
	    file.st_ino == pretended_file.st_ino) {
		syncs += *(uint64_t *)arg & 4 ? -1 : 1;
		return 0;
	}
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static void dmabufs(void)
{
	struct fi_cq_tagged_entry e;
	struct buffer host;
	begin();
	size_t pages = 1 << 20;
	int fd = memfd_create("dmabuf", 0);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)pages) == 0);
	/* It is known by an address at which there is nothing. */
	unsigned char *base = (unsigned char *)0x700000000000;
	struct dmabuf d = {.fd = fd, .offset = 5000, .len = 300000, .base_addr = base};
	struct fi_mr_attr attr = {.mr_iov = (void *)&d, .iov_count = 1, .requested_key = 1,
				  .access = FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE, .iface = iface};
	struct fid_mr *mr;
	EQUAL(fi_mr_regattr(b.domain, &attr, MR_DMABUF, &mr), -FI_EINVAL);
	pretended = fd;
	EQUAL(fi_mr_regattr(b.domain, &attr, MR_DMABUF, &mr), 0);
	make(&a, &host, 300000, 0, 1);
	fill(&host, 200000, 8);
	RETRY(&a, fi_write(a.ep, host.at, 200000, NULL, to_b, 100, fi_mr_key(mr), NULL));
	abi_expect(&a, &b, &e);
	EQUAL(syncs, 0);
	CHECK(pread(fd, seen, 200000, 5100) == 200000);
	abi_verify(seen, 200000, 8);
	blank(&host);
	EQUAL(fi_recv(a.ep, host.at, 200000, host.desc, FI_ADDR_UNSPEC, NULL), 0);
	fi_addr_t to_a = abi_insert(&b, &a.name);
	RETRY(&b, fi_send(b.ep, base + 5100, 200000, fi_mr_desc(mr), to_a, NULL));
	abi_expect(&a, &b, &e);
	abi_expect(&b, &a, &e);
	verify(&host, 0, 200000, 8);
	/* Beyond its end. */
	struct fi_cq_err_entry err;
	RETRY(&b, fi_send(b.ep, base + 5100, 300000, fi_mr_desc(mr), to_a, NULL));
	abi_expect_error(&b, &a, &err);
	EQUAL(err.err, FI_EIO);
	EQUAL(syncs, 0);
	EQUAL(fi_close(&mr->fid), 0);
	/* One that the CPU may not map for writing. */
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	d.fd = pretended = open(path, O_RDONLY);
	CHECK(d.fd >= 0);
	EQUAL(fi_mr_regattr(b.domain, &attr, MR_DMABUF, &mr), -FI_EOPNOTSUPP);
	unmake(&host);
	end();
}

/* From and to host and device, at every member another way; with a copy that fails. */
static void collectives(void)
{
	struct want want = hmem;
	struct buffer from[3], to[3];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	uint64_t words[3 * 5000], found[3 * 5000];
	want.caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE | FI_HMEM;
	load();
	group_begin(3, &want);
	const size_t counts[] = {1, 100, 5000};
	for (int i = 0; i < 3; i++) {
		make(&members[i].n, &from[i], sizeof(words), i != 1, 1);
		make(&members[i].n, &to[i], sizeof(words), i != 0, 2);
	}
	for (size_t c = 0; c < 3; c++) {
		size_t n = counts[c];
		for (int i = 0; i < 3; i++) {
			for (size_t at = 0; at < 3 * n; at++)
				words[at] = (uint64_t)i * 100000 + at;
			put(&from[i], 0, words, 24 * n);
		}
		for (int op = 0; op < 6; op++) {
			for (int i = 0; i < 3; i++) {
				struct fid_ep *ep = members[i].n.ep;
				fi_addr_t group = members[i].group;
				struct buffer *f = &from[i], *t = &to[i];
				blank(t);
				ssize_t rc = -1;
				switch (op) {
				case 0: rc = fi_allreduce(ep, f->at, n, f->desc, t->at, t->desc, group, FI_UINT64, FI_SUM, 0, cx_of(i)); break;
				case 1: rc = fi_allgather(ep, f->at, n, f->desc, t->at, t->desc, group, FI_UINT64, 0, cx_of(i)); break;
				case 2: rc = fi_alltoall(ep, f->at, n, f->desc, t->at, t->desc, group, FI_UINT64, 0, cx_of(i)); break;
				case 3: rc = fi_reduce_scatter(ep, f->at, n, f->desc, t->at, t->desc, group, FI_UINT64, FI_MAX, 0, cx_of(i)); break;
				case 4: rc = fi_scatter(ep, f->at, n, f->desc, t->at, t->desc, group, 0, FI_UINT64, 0, cx_of(i)); break;
				case 5:
					if (i == 2)
						put(t, 0, words, 8 * n);
					rc = fi_broadcast(ep, t->at, n, t->desc, group, 2, FI_UINT64, 0, cx_of(i));
					break;
				}
				EQUAL(rc, 0);
			}
			for (int i = 0; i < 3; i++) {
				EQUAL(group_next(&members[i], &e), 1);
				CHECK(e.op_context == cx_of(i) && e.flags & FI_COLLECTIVE);
				size_t len = op == 1 || op == 2 ? 3 * n : n;
				get(&to[i], 0, found, 8 * len);
				for (size_t at = 0; at < len; at++) {
					uint64_t own = (uint64_t)i * n + at, wanted = 0;
					switch (op) {
					case 0: wanted = 300000 + 3 * at; break;
					case 1:
					case 2: wanted = at / n * 100000 + (op == 1 ? at % n : (uint64_t)i * n + at % n); break;
					case 3: wanted = 200000 + own; break;
					case 4: wanted = own; break;
					case 5: wanted = 200000 + at; break;
					}
					if (found[at] != wanted)
						FAIL("operation %d, member %d, %zu of %zu: %llu, not %llu", op, i, at, len,
						     (unsigned long long)found[at], (unsigned long long)wanted);
				}
				if (8 * len < to[i].len) {
					get(&to[i], 8 * len, found, 8);
					CHECK(found[0] == 0xEEEEEEEEEEEEEEEE);
				}
			}
		}
	}
	/* The values cannot be had: the call says so, and the member may call again. */
	fail(0, 1);
	EQUAL(fi_allreduce(members[0].n.ep, from[0].at, 1, from[0].desc, to[0].at, to[0].desc, members[0].group, FI_UINT64, FI_SUM, 0, cx_of(0)), -FI_EIO);
	/* The result of one cannot be put where it belongs: that one learns, the others have theirs. */
	for (int i = 0; i < 3; i++)
		blank(&to[i]);
	for (int i = 0; i < 3; i++)
		EQUAL(fi_allreduce(members[i].n.ep, from[i].at, 1, from[i].desc, to[i].at, to[i].desc, members[i].group, FI_UINT64, FI_SUM, 0, cx_of(i)), 0);
	fail(0, 2);
	EQUAL(group_next(&members[0], &e), 1);
	for (int i = 1; i < 3; i++) {
		EQUAL(group_next(&members[i], &e), -FI_EAVAIL);
		EQUAL(fi_cq_readerr(members[i].n.cq, &err, 0), 1);
		CHECK(err.err == FI_EIO && err.op_context == cx_of(i) && err.flags & FI_COLLECTIVE);
		untouched(&to[i]);
	}
	fail(0, 0);
	for (int i = 0; i < 3; i++) {
		unmake(&from[i]);
		unmake(&to[i]);
	}
	group_leave();
	group_end();
	/* An endpoint without FI_HMEM does not take such a buffer. */
	struct buffer d;
	group_begin(1, &(struct want){.caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE});
	open_pair(&hmem);
	make(&a, &d, 8, 1, 1);
	EQUAL(fi_allreduce(members[0].n.ep, d.at, 1, d.desc, d.at, d.desc, members[0].group, FI_UINT64, FI_SUM, 0, NULL), -FI_EINVAL);
	unmake(&d);
	end();
	group_leave();
	group_end();
}

#define OF(device, name, ...) {#name "_" device, name, NULL, NULL, 0, {"DEVICE=" device, ##__VA_ARGS__}}
#define EACH(name) OF("cuda", name), OF("rocr", name), OF("ze", name)

static const struct test tests[] = {
	EACH(offered_to_who_asks),
	{"missing_driver", missing_driver, NULL, NULL, 0, {"LD_LIBRARY_PATH="}},
	{"broken_driver", broken_driver, NULL, NULL, 1, {"STANDIN_CUDA=broken", "STANDIN_ROCR=broken", "STANDIN_ZE=broken"}},
	{"driver_without_device", driver_without_device, NULL, NULL, 1, {"STANDIN_CUDA=empty", "STANDIN_ROCR=broken", "STANDIN_ZE=empty"}},
	EACH(messages),
	EACH(pieces),
	EACH(order),
	EACH(receives),
	EACH(remote_memory),
	EACH(atomics),
	EACH(copies_that_fail),
	EACH(refusals),
	EACH(closed_in_flight),
	EACH(collectives),
	OF("cuda", contexts_of_the_application),
	OF("cuda", dmabufs),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
