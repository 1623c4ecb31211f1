/* What fi_getinfo(3) says that an endpoint can do, at its edge and one past it: carried out, or refused at once. */
#include "abi.h"
#include <sys/mman.h>

static const struct want plain = {.caps = FI_MSG | FI_TAGGED | FI_RMA};
static struct node a, b;
static fi_addr_t to_b;
static int context;
static unsigned char buf[1 << 16];

static void begin(void)
{
	abi_open(&a, &plain);
	abi_open(&b, &plain);
	to_b = abi_insert(&a, &b.name);
}

static void end(void)
{
	abi_close(&a);
	abi_close(&b);
}

/* A send that ends when somebody receives it. */
static ssize_t matched(fi_addr_t to)
{
	struct iovec iov = {buf, 8};
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to, .tag = 1, .context = &context};
	return fi_tsendmsg(a.ep, &msg, FI_MATCH_COMPLETE | FI_COMPLETION);
}

static ssize_t receive(struct node *n)
{
	return fi_trecv(n->ep, buf + 1024, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &context);
}

/* tx_attr->size and rx_attr->size, which are how many may wait at least (fi_endpoint(3)): one send more is to be tried again,
 * one receive more is taken, for those are bounded by memory alone; all end. */
static void operations_that_wait(void)
{
	struct fi_cq_tagged_entry e;
	begin();
	size_t sends = a.info->tx_attr->size, receives = b.info->rx_attr->size;
	for (size_t i = 0; i < sends; i++)
		RETRY(&a, matched(to_b));
	EQUAL(matched(to_b), -FI_EAGAIN);
	for (size_t i = 0; i < sends; i++) {
		RETRY(&b, receive(&b));
		abi_expect(&b, &a, &e);
		abi_expect(&a, &b, &e);
	}
	for (size_t i = 0; i < receives + 1; i++)
		EQUAL(receive(&b), 0);
	for (size_t i = 0; i < receives + 1; i++) {
		RETRY(&a, matched(to_b));
		abi_expect(&b, &a, &e);
		abi_expect(&a, &b, &e);
	}
	end();
}

/* iov_limit and rma_iov_limit. */
static void pieces(void)
{
	struct fi_cq_tagged_entry e;
	struct fid_mr *mr;
	begin();
	EQUAL(fi_mr_reg(b.domain, buf + 2048, 1024, FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL), 0);
	size_t most = a.info->tx_attr->iov_limit, ranges = a.info->tx_attr->rma_iov_limit;
	struct iovec iov[64];
	struct fi_rma_iov rma[64];
	CHECK(most < 64 && ranges < 64 && b.info->rx_attr->iov_limit < 64);
	for (size_t i = 0; i < 64; i++)
		iov[i] = (struct iovec){buf + 8 * i, 8};
	struct fi_msg msg = {.msg_iov = iov, .iov_count = most, .addr = to_b, .context = &context};
	EQUAL(fi_recv(b.ep, buf + 1024, 1024, NULL, FI_ADDR_UNSPEC, &context), 0);
	RETRY(&a, fi_sendmsg(a.ep, &msg, FI_COMPLETION));
	abi_expect(&a, &b, &e);
	abi_expect(&b, &a, &e);
	EQUAL(e.len, 8 * most);
	msg.iov_count = most + 1;
	CHECK(fi_sendmsg(a.ep, &msg, FI_COMPLETION) < -1);
	struct fi_msg into = {.msg_iov = iov, .iov_count = b.info->rx_attr->iov_limit + 1, .addr = FI_ADDR_UNSPEC};
	CHECK(fi_recvmsg(b.ep, &into, 0) < -1);
	for (size_t i = 0; i < 64; i++)
		rma[i] = (struct fi_rma_iov){8 * i, 8, 7};
	iov[0].iov_len = 8 * ranges;
	struct fi_msg_rma write = {.msg_iov = iov, .iov_count = 1, .addr = to_b, .rma_iov = rma, .rma_iov_count = ranges,
				   .context = &context};
	RETRY(&a, fi_writemsg(a.ep, &write, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	abi_expect(&a, &b, &e);
	iov[0].iov_len = 8 * (ranges + 1);
	write.rma_iov_count = ranges + 1;
	CHECK(fi_writemsg(a.ep, &write, FI_COMPLETION) < -1);
	EQUAL(fi_close(&mr->fid), 0);
	end();
}

/* inject_size; and all of cq_data_size. */
static void injects(void)
{
	struct fi_cq_tagged_entry e;
	begin();
	size_t most = a.info->tx_attr->inject_size;
	CHECK(2 * most + 1 < sizeof(buf));
	EQUAL(a.info->domain_attr->cq_data_size, sizeof(uint64_t));
	abi_fill(buf, most, 3);
	EQUAL(fi_recv(b.ep, buf + most, most, NULL, FI_ADDR_UNSPEC, &context), 0);
	RETRY(&a, fi_injectdata(a.ep, buf, most, 0xfedcba9876543210, to_b));
	abi_expect(&b, &a, &e);
	EQUAL(e.len, most);
	CHECK(e.data == 0xfedcba9876543210);
	abi_verify(buf + most, most, 3);
	CHECK(fi_inject(a.ep, buf, most + 1, to_b) < -1);
	CHECK(fi_tinject(a.ep, buf, most + 1, to_b, 1) < -1);
	end();
}

/* mr_iov_limit and mr_key_size. */
static void regions(void)
{
	struct fid_mr *mr;
	struct iovec iov[64];
	begin();
	size_t most = a.info->domain_attr->mr_iov_limit;
	CHECK(most < 64);
	for (size_t i = 0; i < 64; i++)
		iov[i] = (struct iovec){buf + 8 * i, 8};
	EQUAL(a.info->domain_attr->mr_key_size, sizeof(uint64_t));
	EQUAL(fi_mr_regv(a.domain, iov, most, FI_REMOTE_READ, 0, UINT64_MAX, 0, &mr, NULL), 0);
	CHECK(fi_mr_key(mr) == UINT64_MAX);
	EQUAL(fi_close(&mr->fid), 0);
	CHECK(fi_mr_regv(a.domain, iov, most + 1, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) < -1);
	end();
}

#define PIECE (1UL << 20)

/* `len` bytes of addresses and a little more, all of one piece of memory. */
static unsigned char *repeated(size_t len, int *fd)
{
	unsigned char *at = mmap(NULL, len + PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*fd = memfd_create("piece", 0);
	CHECK(at != MAP_FAILED && *fd >= 0 && ftruncate(*fd, PIECE) == 0);
	for (size_t i = 0; i < len + PIECE; i += PIECE)
		CHECK(mmap(at + i, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, *fd, 0) == at + i);
	return at;
}

/* A message of max_msg_size, and a write that is longer, which is split. There is memory for one piece of them alone. */
static void the_longest(void)
{
	struct fi_cq_tagged_entry e;
	struct fid_mr *mr;
	int from, to;
	begin();
	size_t most = a.info->ep_attr->max_msg_size;
	unsigned char *out = repeated(most, &from), *in = repeated(most, &to);
	abi_fill(out, PIECE, 5);
	EQUAL(fi_mr_reg(b.domain, in, most + PIECE, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 9, 0, &mr, NULL), 0);
	RETRY(&a, fi_write(a.ep, out, most + PIECE, NULL, to_b, 0, 9, &context));
	abi_expect(&a, &b, &e);
	abi_verify(in, PIECE, 5);
	memset(in, 0, PIECE);
	EQUAL(fi_trecv(b.ep, in, most, NULL, FI_ADDR_UNSPEC, 2, 0, &context), 0);
	RETRY(&a, fi_tsend(a.ep, out, most, NULL, to_b, 2, &context));
	abi_expect(&b, &a, &e);
	EQUAL(e.len, most);
	abi_expect(&a, &b, &e);
	abi_verify(in, PIECE, 5);
	EQUAL(fi_send(a.ep, out, most + 1, NULL, to_b, &context), -FI_EMSGSIZE);
	EQUAL(fi_tsend(a.ep, out, most + 1, NULL, to_b, 2, &context), -FI_EMSGSIZE);
	/* 64 GiB are more than a write or a read is split into. */
	EQUAL(fi_write(a.ep, out, 1UL << 36, NULL, to_b, 0, 9, &context), -FI_EMSGSIZE);
	EQUAL(fi_read(a.ep, out, 1UL << 36, NULL, to_b, 0, 9, &context), -FI_EMSGSIZE);
	EQUAL(fi_close(&mr->fid), 0);
	end();
	CHECK(munmap(out, most + PIECE) == 0 && munmap(in, most + PIECE) == 0);
	close(from);
	close(to);
}

/* As many peers, of whom one is there: each send to the others ends in an error, and the one is reached as before. */
static void ten_thousand_peers(void)
{
	enum { PEERS = 10000 };
	static struct sockaddr_in names[PEERS];
	static fi_addr_t addrs[PEERS];
	struct fi_cq_tagged_entry e;
	begin();
	for (int i = 0; i < PEERS; i++) {
		names[i] = b.name;
		/* Networks of loopback's, at a port where nobody is. */
		names[i].sin_addr.s_addr = htonl(0x7f000000u + 256 + (unsigned)i);
		names[i].sin_port = htons(9);
	}
	EQUAL(fi_av_insert(a.av, names, PEERS, addrs, 0, NULL), PEERS);
	int posted = 0, ended = 0;
	for (double until = abi_now() + PATIENCE; ended < PEERS && abi_now() < until;) {
		struct fi_cq_err_entry err = {0};
		if (posted < PEERS && matched(addrs[posted]) == 0)
			posted++;
		ssize_t rc = fi_cq_read(a.cq, &e, 1);
		if (rc == -FI_EAGAIN)
			continue;
		EQUAL(rc, -FI_EAVAIL);
		EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
		CHECK(err.err != 0);
		ended++;
	}
	EQUAL(ended, PEERS);
	RETRY(&b, receive(&b));
	RETRY(&a, matched(to_b));
	abi_expect(&b, &a, &e);
	abi_expect(&a, &b, &e);
	end();
}

int main(void)
{
	RUN(operations_that_wait);
	RUN(pieces);
	RUN(injects);
	RUN(regions);
	RUN(the_longest);
	RUN(ten_thousand_peers);
	printf("%d checks\n", abi_checks);
	return 0;
}
