/* Messages, tags, RMA and completions between two endpoints of one process. */
#include "abi.h"

static struct node a, b;
static fi_addr_t to_b, to_a;
static unsigned char out[1 << 20], in[1 << 20];
static int contexts[64];

static void pair(const struct want *want)
{
	abi_open(&a, want);
	abi_open(&b, want);
	to_b = abi_insert(&a, &b.name);
	to_a = abi_insert(&b, &a.name);
}

static void unpair(void)
{
	abi_close(&a);
	abi_close(&b);
}

static const struct want everything = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE,
	.mr_mode = 0,
};

/* One message of every size that changes protocol, posted before and after it arrives. */
static void sizes(void)
{
	size_t lens[] = {0, 1, 63, 64, 255, 256, 257, 4096, 16000, 17000, 65535, 65536, 65537, 300000, 1 << 20};
	pair(&everything);
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++)
		for (int late = 0; late < 2; late++) {
			struct fi_cq_tagged_entry e;
			size_t len = lens[i];
			abi_fill(out, len, (unsigned)i);
			memset(in, 0, len + 1 < sizeof(in) ? len + 1 : len);
			if (!late)
				EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, to_a, 7, 0, &contexts[1]), 0);
			RETRY(&a, fi_tsend(a.ep, out, len, NULL, to_b, 7, &contexts[0]));
			if (late) {
				double end = abi_now() + 0.01;
				while (abi_now() < end)
					(void)fi_cq_read(b.cq, NULL, 0), (void)fi_cq_read(a.cq, NULL, 0);
				EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[1]), 0);
			}
			abi_expect(&b, &a, &e);
			CHECK(e.op_context == &contexts[1] && e.len == len && e.tag == 7);
			EQUAL(e.flags, FI_RECV | FI_TAGGED);
			abi_verify(in, len, (unsigned)i);
			abi_expect(&a, &b, &e);
			CHECK(e.op_context == &contexts[0]);
			EQUAL(e.flags, FI_SEND | FI_TAGGED);
		}
	unpair();
}

static void variants(void)
{
	pair(&everything);
	struct fi_cq_tagged_entry e;
	fi_addr_t src = 0;
	/* Injected, with and without data: no completion at the sender. */
	EQUAL(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, &contexts[0]), 0);
	EQUAL(fi_recv(b.ep, in + 100, 100, NULL, to_a, &contexts[1]), 0);
	EQUAL(fi_trecv(b.ep, in + 200, 100, NULL, to_a, 0x5500, 0xff, &contexts[2]), 0);
	abi_fill(out, 256, 3);
	RETRY(&a, fi_inject(a.ep, out, 10, to_b));
	RETRY(&a, fi_injectdata(a.ep, out, 20, 0x1122334455667788ULL, to_b));
	RETRY(&a, fi_tinjectdata(a.ep, out, 30, 99, to_b, 0x5577));
	abi_expect(&b, &a, &e);
	CHECK(e.op_context == &contexts[0] && e.len == 10 && e.buf == in);
	EQUAL(e.flags, FI_RECV | FI_MSG);
	double end = abi_now() + PATIENCE;
	ssize_t rc;
	while ((rc = fi_cq_readfrom(b.cq, &e, 1, &src)) == -FI_EAGAIN && abi_now() < end)
		(void)fi_cq_read(a.cq, NULL, 0);
	EQUAL(rc, 1);
	CHECK(e.op_context == &contexts[1] && e.len == 20 && e.data == 0x1122334455667788ULL);
	EQUAL(e.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
	EQUAL(src, to_a);
	abi_expect(&b, &a, &e);
	CHECK(e.op_context == &contexts[2] && e.len == 30 && e.data == 99 && e.tag == 0x5577);
	EQUAL(e.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	abi_verify(in + 200, 30, 3);
	EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	EQUAL(fi_inject(a.ep, out, 100000, to_b), -FI_EINVAL);
	/* Several pieces on both sides, as Intel MPI sends them. */
	struct iovec siov[3] = {{out, 100}, {out + 1000, 5000}, {out + 50000, 3}};
	struct iovec riov[4] = {{in, 50}, {in + 60, 0}, {in + 70, 5000}, {in + 6000, 1000}};
	abi_fill(out, 60000, 4);
	memset(in, 0, 7000);
	EQUAL(fi_recvv(b.ep, riov, NULL, 4, FI_ADDR_UNSPEC, &contexts[3]), 0);
	RETRY(&a, fi_sendv(a.ep, siov, NULL, 3, to_b, &contexts[4]));
	abi_expect(&b, &a, &e);
	CHECK(e.op_context == &contexts[3] && e.len == 5103);
	CHECK(memcmp(in, out, 50) == 0 && memcmp(in + 70, out + 50, 50) == 0);
	CHECK(memcmp(in + 120, out + 1000, 4950) == 0 && memcmp(in + 6000, out + 5950, 50) == 0);
	CHECK(memcmp(in + 6050, out + 50000, 3) == 0 && in[6053] == 0);
	abi_expect(&a, &b, &e);
	EQUAL(fi_sendv(a.ep, siov, NULL, 5, to_b, NULL), -FI_EINVAL);
	/* A zero-length message without a buffer, with every completion level. */
	uint64_t levels[] = {0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_INJECT,
			     FI_MORE};
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		struct iovec none = {NULL, 0};
		struct fi_msg_tagged msg = {.msg_iov = &none, .iov_count = 1, .addr = to_b, .tag = i, .context = &contexts[i]};
		EQUAL(fi_trecv(b.ep, NULL, 0, NULL, to_a, i, 0, &contexts[10]), 0);
		RETRY(&a, fi_tsendmsg(a.ep, &msg, levels[i] | FI_COMPLETION));
		abi_expect(&a, &b, &e);
		CHECK(e.op_context == &contexts[i]);
		abi_expect(&b, &a, &e);
		CHECK(e.op_context == &contexts[10] && e.len == 0 && e.tag == i);
	}
	struct fi_msg_tagged bad = {.addr = to_b};
	EQUAL(fi_tsendmsg(a.ep, &bad, FI_MULTICAST), -FI_EBADFLAGS);
	unpair();
}

static void selective(void)
{
	struct want want = everything;
	want.selective = FI_SELECTIVE_COMPLETION;
	pair(&want);
	struct fi_cq_tagged_entry e;
	struct iovec iov = {in, 100}, oiov = {out, 10};
	struct fi_msg rmsg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[1]};
	struct fi_msg smsg = {.msg_iov = &oiov, .iov_count = 1, .addr = to_b, .context = &contexts[2]};
	/* Neither flags nor default flags ask for it: silence. */
	EQUAL(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, &contexts[0]), 0);
	RETRY(&a, fi_send(a.ep, out, 10, NULL, to_b, &contexts[3]));
	EQUAL(fi_recvmsg(b.ep, &rmsg, FI_COMPLETION), 0);
	RETRY(&a, fi_sendmsg(a.ep, &smsg, FI_COMPLETION));
	abi_expect(&b, &a, &e);
	CHECK(e.op_context == &contexts[1]);
	abi_expect(&a, &b, &e);
	CHECK(e.op_context == &contexts[2]);
	/* An error is told all the same, with its context. */
	struct fi_cq_err_entry err;
	EQUAL(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, &contexts[5]), 0);
	EQUAL(fi_cancel(&b.ep->fid, &contexts[5]), 0);
	abi_expect_error(&b, &a, &err);
	CHECK(err.op_context == &contexts[5]);
	EQUAL(err.err, FI_ECANCELED);
	unpair();
	/* Default flags count for fi_send, not for fi_sendmsg. */
	want.tx_op_flags = FI_COMPLETION;
	pair(&want);
	EQUAL(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a, fi_sendmsg(a.ep, &smsg, 0));
	RETRY(&a, fi_send(a.ep, out, 10, NULL, to_b, &contexts[7]));
	abi_expect(&a, &b, &e);
	CHECK(e.op_context == &contexts[7]);
	unpair();
}

static void truncation(void)
{
	pair(&everything);
	size_t lens[] = {200, 5000, 200000};
	for (int i = 0; i < 3; i++)
		for (int late = 0; late < 2; late++) {
			struct fi_cq_err_entry err;
			struct fi_cq_tagged_entry e;
			abi_fill(out, lens[i], (unsigned)i);
			memset(in, 0xee, 200);
			if (!late)
				EQUAL(fi_trecv(b.ep, in, 100, NULL, to_a, 5, 0, &contexts[1]), 0);
			RETRY(&a, fi_tsenddata(a.ep, out, lens[i], NULL, 77, to_b, 5, &contexts[0]));
			if (late) {
				for (int k = 0; k < 200; k++)
					(void)fi_cq_read(b.cq, NULL, 0), (void)fi_cq_read(a.cq, NULL, 0);
				EQUAL(fi_trecv(b.ep, in, 100, NULL, to_a, 5, 0, &contexts[1]), 0);
			}
			abi_expect_error(&b, &a, &err);
			EQUAL(err.err, FI_ETRUNC);
			CHECK(err.op_context == &contexts[1] && err.tag == 5 && err.data == 77);
			EQUAL(err.len, 100);
			EQUAL(err.olen, lens[i] - 100);
			CHECK(err.flags & FI_TAGGED && err.flags & FI_RECV);
			abi_verify(in, 100, (unsigned)i);
			CHECK(in[100] == 0xee);
			CHECK(strstr(fi_cq_strerror(b.cq, err.prov_errno, NULL, NULL, 0), "runcated") != NULL);
			abi_expect(&a, &b, &e);
			CHECK(e.op_context == &contexts[0]);
		}
	unpair();
}

static void peeks(void)
{
	pair(&everything);
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct iovec iov = {in, sizeof(in)};
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_a, .tag = 9, .context = &contexts[1]};
	EQUAL(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_COMPLETION), 0);
	abi_expect_error(&b, &a, &err);
	EQUAL(err.err, FI_ENOMSG);
	CHECK(err.op_context == &contexts[1]);
	size_t lens[] = {40, 3000, 200000};
	for (int i = 0; i < 3; i++) {
		size_t len = lens[i];
		abi_fill(out, len, (unsigned)i);
		for (int k = 0; k < 4; k++)
			RETRY(&a, fi_tsenddata(a.ep, out, len, NULL, (uint64_t)k, to_b, 9, &contexts[40 + k]));
		/* Look until it is there, then look again: it stays. */
		for (int seen = 0; seen < 2;) {
			EQUAL(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_COMPLETION), 0);
			if (abi_next(&b, &a, &e) == 1) {
				CHECK(e.op_context == &contexts[1] && e.len == len && e.tag == 9 && e.data == 0);
				seen++;
			} else {
				EQUAL(fi_cq_readerr(b.cq, &err, 0), 1);
				EQUAL(err.err, FI_ENOMSG);
			}
		}
		/* Claim it; the next peek sees the second message, which is then dropped. */
		EQUAL(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_CLAIM | FI_COMPLETION), 0);
		abi_expect(&b, &a, &e);
		CHECK(e.data == 0);
		msg.context = &contexts[2];
		for (;;) {
			EQUAL(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_DISCARD | FI_COMPLETION), 0);
			if (abi_next(&b, &a, &e) == 1)
				break;
			EQUAL(fi_cq_readerr(b.cq, &err, 0), 1);
		}
		CHECK(e.data == 1 && e.op_context == &contexts[2]);
		/* Receive what was claimed, then the third message as usual, claim and drop the fourth. */
		msg.context = &contexts[1];
		memset(in, 0, len);
		EQUAL(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_COMPLETION), 0);
		abi_expect(&b, &a, &e);
		CHECK(e.op_context == &contexts[1] && e.len == len && e.data == 0);
		abi_verify(in, len, (unsigned)i);
		EQUAL(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_COMPLETION), -FI_EINVAL);
		EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, to_a, 9, 0, &contexts[3]), 0);
		abi_expect(&b, &a, &e);
		CHECK(e.op_context == &contexts[3] && e.data == 2);
		for (;;) {
			EQUAL(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_CLAIM | FI_COMPLETION), 0);
			if (abi_next(&b, &a, &e) == 1)
				break;
			EQUAL(fi_cq_readerr(b.cq, &err, 0), 1);
		}
		CHECK(e.data == 3);
		EQUAL(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_DISCARD | FI_COMPLETION), 0);
		abi_expect(&b, &a, &e);
		for (int k = 0; k < 4; k++)
			abi_expect(&a, &b, &e);
	}
	unpair();
}

/* Where completions are selective, a peek has an answer all the same. */
static void peeks_of_a_selective_queue(void)
{
	struct want want = everything;
	want.selective = FI_SELECTIVE_COMPLETION;
	pair(&want);
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	struct iovec iov = {in, sizeof(in)};
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_a, .tag = 9, .context = &contexts[1]};
	uint64_t kinds[] = {FI_PEEK, FI_PEEK | FI_DISCARD, FI_PEEK | FI_CLAIM};
	for (int k = 0; k < 3; k++) {
		RETRY(&a, fi_tinject(a.ep, out, 8, to_b, 9));
		for (double end = abi_now() + PATIENCE;;) {
			CHECK(abi_now() < end);
			EQUAL(fi_trecvmsg(b.ep, &msg, kinds[k]), 0);
			if (abi_next(&b, &a, &e) == 1)
				break;
			EQUAL(fi_cq_readerr(b.cq, &err, 0), 1);
			EQUAL(err.err, FI_ENOMSG);
		}
		CHECK(e.op_context == &contexts[1] && e.tag == 9 && e.len == 8);
		/* Nothing else: a receive does not ask for an entry. */
		if (kinds[k] == FI_PEEK)
			EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, to_a, 9, 0, &contexts[2]), 0);
		EQUAL(fi_cq_read(b.cq, &e, 1), -FI_EAGAIN);
	}
	EQUAL(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_COMPLETION), 0);
	abi_expect(&b, &a, &e);
	unpair();
}

static void multi_receive(void)
{
	pair(&everything);
	struct fi_cq_tagged_entry e;
	size_t least = 1001;
	EQUAL(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
	struct iovec iov[2] = {{in, 10000}, {in + 20000, 10000}};
	for (int i = 0; i < 2; i++) {
		struct fi_msg msg = {.msg_iov = &iov[i], .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[i]};
		EQUAL(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV | FI_COMPLETION), 0);
	}
	abi_fill(out, 3000, 8);
	size_t at = 0;
	int released = 0, messages = 0;
	for (int i = 0; i < 5; i++) {
		RETRY(&a, fi_send(a.ep, out, 3000, NULL, to_b, &contexts[9]));
		abi_expect(&a, &b, &e);
	}
	while (messages < 5 || !released) {
		abi_expect(&b, &a, &e);
		if (e.flags & FI_MULTI_RECV) {
			released++;
			CHECK(e.op_context == &contexts[0]);
		}
		if (e.len) {
			messages++;
			if (e.op_context == &contexts[0]) {
				CHECK((unsigned char *)e.buf == in + at);
				at += e.len;
			}
			abi_verify(e.buf, e.len, 8);
		}
	}
	EQUAL(at, 9000);
	EQUAL(released, 1);
	/* The partly used buffer comes back cancelled. */
	struct fi_cq_err_entry err;
	EQUAL(fi_cancel(&b.ep->fid, &contexts[1]), 0);
	abi_expect_error(&b, &a, &err);
	EQUAL(err.err, FI_ECANCELED);
	CHECK(err.op_context == &contexts[1]);
	EQUAL(err.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
	unpair();
}

static void order_and_many(void)
{
	pair(&everything);
	enum { MANY = 3000 };
	static uint32_t values[MANY], got[MANY];
	struct fi_cq_tagged_entry e;
	for (int i = 0; i < MANY; i++) {
		values[i] = (uint32_t)i;
		RETRY(&a, fi_tsend(a.ep, &values[i], 4, NULL, to_b, 1, NULL));
	}
	/* Half of them are unexpected by now; contexts of NULL are fine. */
	for (int i = 0; i < MANY; i++)
		EQUAL(fi_trecv(b.ep, &got[i], 4, NULL, to_a, 0, ~0ULL, (void *)(uintptr_t)(i + 1)), 0);
	for (int i = 0; i < MANY; i++)
		abi_expect(&b, &a, &e);
	for (int i = 0; i < MANY; i++)
		if (got[i] != (uint32_t)i)
			FAIL("message %d overtaken by %u", i, got[i]);
	for (int i = 0; i < MANY; i++)
		abi_expect(&a, &b, &e);
	unpair();
}

static void to_itself(void)
{
	abi_open(&a, &everything);
	fi_addr_t self = abi_insert(&a, &a.name);
	struct fi_cq_tagged_entry e;
	size_t lens[] = {10, 300000};
	for (int i = 0; i < 2; i++) {
		abi_fill(out, lens[i], 2);
		EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, self, 1, 0, &contexts[0]), 0);
		RETRY(&a, fi_tsend(a.ep, out, lens[i], NULL, self, 1, &contexts[1]));
		abi_expect(&a, NULL, &e);
		abi_expect(&a, NULL, &e);
		abi_verify(in, lens[i], 2);
	}
	abi_close(&a);
}

static void remote_access(int mr_mode)
{
	struct want want = everything;
	want.mr_mode = mr_mode;
	want.version = mr_mode == FI_MR_BASIC ? FI_VERSION(1, 4) : 0;
	pair(&want);
	struct fid_mr *mr, *read_only;
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
	EQUAL(fi_mr_reg(b.domain, in, sizeof(in), access, 0, 11, 0, &mr, NULL), 0);
	EQUAL(fi_mr_reg(b.domain, in, 4096, FI_REMOTE_READ, 0, 12, 0, &read_only, NULL), 0);
	uint64_t base = mr_mode == FI_MR_BASIC ? (uint64_t)(uintptr_t)in : 0, key = fi_mr_key(mr);
	struct fi_cntr_attr cattr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(a.domain, &cattr, &cntr, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &cntr->fid, FI_READ | FI_WRITE), 0);
	struct fi_cq_tagged_entry e;
	size_t lens[] = {0, 1, 100, 5000, 100000, 500000};
	for (int i = 0; i < 6; i++) {
		size_t len = lens[i];
		abi_fill(out, len, (unsigned)i);
		RETRY(&a, fi_write(a.ep, out, len, NULL, to_b, base + 100, key, &contexts[0]));
		abi_expect(&a, &b, &e);
		EQUAL(e.flags, FI_RMA | FI_WRITE);
		CHECK(e.op_context == &contexts[0]);
		abi_verify(in + 100, len, (unsigned)i);
		memset(out, 0, len);
		RETRY(&a, fi_read(a.ep, out, len, NULL, to_b, base + 100, key, &contexts[1]));
		abi_expect(&a, &b, &e);
		EQUAL(e.flags, FI_RMA | FI_READ);
		abi_verify(out, len, (unsigned)i);
	}
	/* Remote CQ data uses up no receive. */
	abi_fill(out, 50000, 9);
	RETRY(&a, fi_writedata(a.ep, out, 50000, NULL, 4711, to_b, base, key, &contexts[2]));
	abi_expect(&b, &a, &e);
	CHECK(e.data == 4711);
	EQUAL(e.flags & (FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA), FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA);
	abi_verify(in, 50000, 9);
	abi_expect(&a, &b, &e);
	/* Injected: counted, not shown. */
	abi_fill(out, 60, 10);
	RETRY(&a, fi_inject_write(a.ep, out, 60, to_b, base + 7, key));
	double end = abi_now() + PATIENCE;
	while (fi_cntr_wait(cntr, 14, 0) != 0 && abi_now() < end)
		(void)fi_cq_read(b.cq, NULL, 0);
	EQUAL(fi_cntr_read(cntr), 14);
	abi_verify(in + 7, 60, 10);
	EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	/* Several remote ranges. */
	struct iovec liov[2] = {{out, 300}, {out + 1000, 700}};
	struct fi_rma_iov riov[2] = {{base, 400, key}, {base + 5000, 600, key}};
	struct fi_msg_rma msg = {.msg_iov = liov, .iov_count = 2, .addr = to_b, .rma_iov = riov, .rma_iov_count = 2,
				 .context = &contexts[3]};
	abi_fill(out, 2000, 12);
	RETRY(&a, fi_writemsg(a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	abi_expect(&a, &b, &e);
	CHECK(memcmp(in, out, 300) == 0 && memcmp(in + 300, out + 1000, 100) == 0);
	CHECK(memcmp(in + 5000, out + 1100, 600) == 0);
	memset(out, 0, 2000);
	RETRY(&a, fi_readmsg(a.ep, &msg, FI_COMPLETION));
	abi_expect(&a, &b, &e);
	CHECK(memcmp(in, out, 300) == 0 && memcmp(in + 5000, out + 1100, 600) == 0);
	/* What must be refused, all alike: nobody learns which regions there are. */
	struct fi_cq_err_entry err;
	struct {
		uint64_t addr, key;
		size_t len;
	} bad[] = {
		{base, 999, 8},
		{base + sizeof(in) - 4, key, 8},
		{base, fi_mr_key(read_only), 8},
	};
	memset(in, 0x11, 64);
	for (int i = 0; i < 3; i++) {
		RETRY(&a, fi_write(a.ep, out, bad[i].len, NULL, to_b, bad[i].addr, bad[i].key, &contexts[i]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.op_context == &contexts[i]);
		EQUAL(err.err, FI_EKEYREJECTED);
		const char *text = fi_cq_strerror(a.cq, err.prov_errno, err.err_data, NULL, 0);
		if (strncmp(text, "BadKey: ", 8) != 0)
			FAIL("expected BadKey, got: %s", text);
	}
	for (int i = 0; i < 64; i++)
		CHECK(in[i] == 0x11);
	RETRY(&a, fi_read(a.ep, out, 8, NULL, to_b, base, 999, &contexts[4]));
	abi_expect_error(&a, &b, &err);
	EQUAL(fi_cntr_readerr(cntr), 4);
	/* And then all is well again. */
	RETRY(&a, fi_read(a.ep, out, 8, NULL, to_b, base, key, &contexts[5]));
	abi_expect(&a, &b, &e);
	CHECK(out[0] == 0x11);
	EQUAL(fi_close(&mr->fid), 0);
	EQUAL(fi_close(&read_only->fid), 0);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&cntr->fid), 0);
	EQUAL(fi_close(&a.cq->fid), 0);
	EQUAL(fi_close(&a.av->fid), 0);
	EQUAL(fi_close(&a.domain->fid), 0);
	EQUAL(fi_close(&a.fabric->fid), 0);
	fi_freeinfo(a.info);
	abi_close(&b);
}

static void rma_by_offset(void)
{
	remote_access(0);
}

static void rma_by_address(void)
{
	remote_access(FI_MR_BASIC);
}

/* The same over IPv6, where this host has it. */
static void ipv6(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	hints->caps = FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("squall");
	if (fi_getinfo(FI_VERSION(1, 17), "::1", NULL, FI_SOURCE, hints, &info)) {
		fi_freeinfo(hints);
		return;
	}
	fi_freeinfo(hints);
	struct node n = {.info = info};
	struct fi_av_attr av_attr = {.type = FI_AV_MAP};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	EQUAL(fi_fabric(info->fabric_attr, &n.fabric, NULL), 0);
	EQUAL(fi_domain(n.fabric, info, &n.domain, NULL), 0);
	EQUAL(fi_av_open(n.domain, &av_attr, &n.av, NULL), 0);
	EQUAL(fi_cq_open(n.domain, &cq_attr, &n.cq, NULL), 0);
	EQUAL(fi_endpoint(n.domain, info, &n.ep, NULL), 0);
	EQUAL(fi_ep_bind(n.ep, &n.av->fid, 0), 0);
	EQUAL(fi_ep_bind(n.ep, &n.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_enable(n.ep), 0);
	struct sockaddr_in6 name;
	size_t len = sizeof(name);
	EQUAL(fi_getname(&n.ep->fid, &name, &len), 0);
	EQUAL(len, sizeof(name));
	EQUAL(name.sin6_family, AF_INET6);
	fi_addr_t self;
	EQUAL(fi_av_insert(n.av, &name, 1, &self, 0, NULL), 1);
	char text[80];
	len = sizeof(text);
	CHECK(strncmp(fi_av_straddr(n.av, &name, text, &len), "fi_sockaddr_in6://[::1]:", 24) == 0);
	struct fi_cq_tagged_entry e;
	abi_fill(out, 200000, 7);
	EQUAL(fi_trecv(n.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
	RETRY(&n, fi_tsend(n.ep, out, 200000, NULL, self, 1, NULL));
	abi_expect(&n, NULL, &e);
	abi_expect(&n, NULL, &e);
	abi_verify(in, 200000, 7);
	abi_close(&n);
}

static void *send_later(void *unused)
{
	(void)unused;
	struct timespec nap = {.tv_nsec = 100 * 1000 * 1000};
	nanosleep(&nap, NULL);
	RETRY(&a, fi_tsend(a.ep, out, 100, NULL, to_b, 3, &contexts[0]));
	struct fi_cq_tagged_entry e;
	abi_expect(&a, NULL, &e);
	return NULL;
}

/* Blocks in fi_cq_sread and in poll while another thread sends. */
static void sleeping(void)
{
	struct want want = everything;
	want.wait = FI_WAIT_FD;
	want.threading = FI_THREAD_SAFE;
	enum fi_progress models[] = {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO};
	for (int m = 0; m < 4; m++) {
		want.progress = models[m / 2];
		pair(&want);
		pthread_t thread;
		struct fi_cq_tagged_entry e;
		EQUAL(fi_trecv(b.ep, in, 100, NULL, to_a, 3, 0, &contexts[1]), 0);
		EQUAL(pthread_create(&thread, NULL, send_later, NULL), 0);
		if (m % 2) {
			EQUAL(fi_cq_sread(b.cq, &e, 1, NULL, 20000), 1);
		} else {
			struct fid *fids[1] = {&b.cq->fid};
			int fd = -1;
			EQUAL(fi_control(&b.cq->fid, FI_GETWAIT, &fd), 0);
			double end = abi_now() + 20;
			while (fi_cq_read(b.cq, &e, 1) == -FI_EAGAIN) {
				CHECK(abi_now() < end);
				if (fi_trywait(b.fabric, fids, 1) == 0) {
					struct pollfd pfd = {.fd = fd, .events = POLLIN};
					poll(&pfd, 1, 5000);
				}
			}
		}
		CHECK(e.op_context == &contexts[1] && e.len == 100);
		EQUAL(pthread_join(thread, NULL), 0);
		unpair();
	}
}

/* The peer of an endpoint with automatic progress gets on although nobody there calls anything. */
static void automatic(void)
{
	struct want want = everything, quiet = everything;
	want.progress = FI_PROGRESS_AUTO;
	abi_open(&a, &quiet);
	abi_open(&b, &want);
	to_b = abi_insert(&a, &b.name);
	to_a = abi_insert(&b, &a.name);
	struct fi_cq_tagged_entry e;
	abi_fill(out, 300000, 5);
	EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, to_a, 1, 0, &contexts[1]), 0);
	RETRY(&a, fi_tsend(a.ep, out, 300000, NULL, to_b, 1, &contexts[0]));
	abi_expect(&a, NULL, &e);
	abi_verify(in, 300000, 5);
	abi_expect(&b, NULL, &e);
	/* Idle, it uses next to no processor. */
	struct rusage before, after;
	struct timespec nap = {.tv_sec = 1};
	getrusage(RUSAGE_SELF, &before);
	nanosleep(&nap, NULL);
	getrusage(RUSAGE_SELF, &after);
	double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
		      (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
		      (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) * 1e-6 +
		      (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e-6;
	if (!getenv("ABI_SLOW") && used > 0.01)
		FAIL("an idle process used %.1f %% of a core", used * 100);
	unpair();
}

/* The same under manual progress: background progress answers for an application that computes. */
static void attended(void)
{
	struct want want = everything;
	want.threading = FI_THREAD_DOMAIN;
	pair(&want);
	struct fi_cq_tagged_entry e;
	abi_fill(out, 300000, 6);
	EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, to_a, 1, 0, &contexts[1]), 0);
	RETRY(&a, fi_tsend(a.ep, out, 300000, NULL, to_b, 1, &contexts[0]));
	abi_expect(&a, NULL, &e);
	CHECK(e.op_context == &contexts[0]);
	abi_expect(&b, NULL, &e);
	abi_verify(in, 300000, 6);
	unpair();
}

/* fi_endpoint(3): fi_close discards what is outstanding, without a word. It needs no receive of the peer's, which lives. */
static void closing(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	size_t lens[] = {100, 1 << 20};
	for (int i = 0; i < 2; i++) {
		struct iovec iov = {out, lens[i]};
		struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .tag = 1};
		pair(&everything);
		msg.addr = to_b;
		/* They know each other. */
		EQUAL(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), 0);
		RETRY(&a, fi_tsend(a.ep, out, 8, NULL, to_b, 0, NULL));
		abi_expect(&b, &a, &e);
		abi_expect(&a, &b, &e);
		RETRY(&a, fi_tsendmsg(a.ep, &msg, FI_COMPLETION | FI_MATCH_COMPLETE));
		double end = abi_now() + 0.1;
		while (abi_now() < end) {
			EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
			(void)fi_cq_read(b.cq, NULL, 0);
		}
		double start = abi_now();
		EQUAL(fi_close(&a.ep->fid), 0);
		double took = abi_now() - start;
		if (took > 10)
			FAIL("closing with %zu bytes nobody takes took %.1f s", lens[i], took);
		EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
		/* Who receives it now has what there is, or an error. */
		EQUAL(fi_trecv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[3]), 0);
		if (i == 0) {
			abi_expect(&b, NULL, &e);
			CHECK(e.op_context == &contexts[3] && e.len == lens[i]);
		} else {
			abi_expect_error(&b, NULL, &err);
			CHECK(err.op_context == &contexts[3]);
		}
		EQUAL(fi_close(&a.cq->fid), 0);
		EQUAL(fi_close(&a.av->fid), 0);
		EQUAL(fi_close(&a.domain->fid), 0);
		EQUAL(fi_close(&a.fabric->fid), 0);
		fi_freeinfo(a.info);
		abi_close(&b);
	}
}

int main(void)
{
	RUN(sizes);
	RUN(variants);
	RUN(selective);
	RUN(truncation);
	RUN(peeks);
	RUN(peeks_of_a_selective_queue);
	RUN(multi_receive);
	RUN(order_and_many);
	RUN(to_itself);
	RUN(ipv6);
	RUN(rma_by_offset);
	RUN(rma_by_address);
	RUN(sleeping);
	RUN(automatic);
	RUN(attended);
	RUN(closing);
	printf("%d checks\n", abi_checks);
	return 0;
}
