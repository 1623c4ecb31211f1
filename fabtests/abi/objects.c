/* Objects: address vectors, queues, counters, memory regions, options, and the order in which they are closed. */
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "abi.h"

static void address_vectors(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	enum { MANY = 100000 };
	struct sockaddr_in *names = calloc(MANY, sizeof(*names));
	fi_addr_t *addrs = calloc(MANY, sizeof(*addrs));
	CHECK(names && addrs);
	for (int i = 0; i < MANY; i++) {
		names[i].sin_family = AF_INET;
		names[i].sin_port = htons((uint16_t)(1 + i % 60000));
		names[i].sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)(i / 60000));
	}
	for (int type = FI_AV_MAP; type <= FI_AV_TABLE; type++) {
		struct fi_av_attr attr = {.type = (enum fi_av_type)type, .count = 10};
		struct fid_av *av;
		EQUAL(fi_av_open(n.domain, &attr, &av, NULL), 0);
		double start = abi_now();
		EQUAL(fi_av_insert(av, names, MANY, addrs, 0, NULL), MANY);
		CHECK(abi_now() - start < 20.0);
		for (int i = 0; i < MANY; i++)
			if (addrs[i] != (fi_addr_t)i)
				FAIL("index %d is %llu", i, (unsigned long long)addrs[i]);
		/* Look-up, also into too little room. */
		struct sockaddr_in found = {0};
		size_t len = sizeof(found);
		EQUAL(fi_av_lookup(av, addrs[70000], &found, &len), 0);
		CHECK(memcmp(&found, &names[70000], sizeof(found)) == 0);
		len = 4;
		EQUAL(fi_av_lookup(av, 0, &found, &len), 0);
		EQUAL(len, sizeof(found));
		len = sizeof(found);
		EQUAL(fi_av_lookup(av, MANY, &found, &len), -FI_EINVAL);
		/* Twice the same; removed as often. */
		fi_addr_t again = 77;
		EQUAL(fi_av_insert(av, &names[5], 1, &again, 0, NULL), 1);
		EQUAL(again, 5);
		EQUAL(fi_av_remove(av, &again, 1, 0), 0);
		EQUAL(fi_av_lookup(av, 5, &found, &len), 0);
		EQUAL(fi_av_remove(av, &again, 1, 0), 0);
		EQUAL(fi_av_lookup(av, 5, &found, &len), -FI_EINVAL);
		EQUAL(fi_av_remove(av, &again, 1, 0), -FI_EINVAL);
		EQUAL(fi_av_insert(av, &names[5], 1, &again, 0, NULL), 1);
		EQUAL(again, 5);
		/* Nowhere to put the answers. */
		EQUAL(fi_av_insert(av, names, 3, NULL, 0, NULL), 3);
		/* Text. */
		char text[64];
		len = sizeof(text);
		CHECK(fi_av_straddr(av, &names[0], text, &len) == text);
		CHECK(strcmp(text, "fi_sockaddr_in://10.0.0.1:1") == 0);
		EQUAL(len, strlen(text) + 1);
		/* Names. */
		fi_addr_t by_name;
		EQUAL(fi_av_insertsvc(av, "127.0.0.1", "9000", &by_name, 0, NULL), 1);
		len = sizeof(found);
		EQUAL(fi_av_lookup(av, by_name, &found, &len), 0);
		EQUAL(ntohs(found.sin_port), 9000);
		fi_addr_t sym[6];
		EQUAL(fi_av_insertsym(av, "10.9.0.1", 2, "9000", 3, sym, 0, NULL), 6);
		EQUAL(fi_av_lookup(av, sym[5], &found, &len), 0);
		EQUAL(ntohs(found.sin_port), 9002);
		EQUAL(ntohl(found.sin_addr.s_addr), 0x0a090002);
		/* One bad address among good ones. */
		struct sockaddr_in mixed[3];
		memcpy(mixed, names, sizeof(mixed));
		mixed[1].sin_family = 77;
		int errors[3] = {-1, -1, -1};
		fi_addr_t out[3];
		EQUAL(fi_av_insert(av, mixed, 3, out, FI_SYNC_ERR, errors), 2);
		CHECK(errors[0] == 0 && errors[1] != 0 && errors[2] == 0);
		EQUAL(out[1], FI_ADDR_NOTAVAIL);
		EQUAL(fi_close(&av->fid), 0);
	}
	/* Shared vectors are not there. */
	struct fi_av_attr named = {.type = FI_AV_TABLE, .name = "shared"};
	struct fid_av *av;
	EQUAL(fi_av_open(n.domain, &named, &av, NULL), -FI_ENOSYS);
	free(names);
	free(addrs);
	abi_close(&n);
}

static void event_queues(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	struct fi_eq_attr attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_FD};
	struct fid_eq *eq;
	EQUAL(fi_eq_open(n.fabric, &attr, &eq, NULL), 0);
	struct fi_eq_entry in = {.fid = &eq->fid, .context = eq, .data = 42}, out;
	uint32_t event = 0;
	EQUAL(fi_eq_read(eq, &event, &out, sizeof(out), 0), -FI_EAGAIN);
	int fd = -1;
	EQUAL(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
	struct fid *fids[1] = {&eq->fid};
	EQUAL(fi_trywait(n.fabric, fids, 1), 0);
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	EQUAL(poll(&pfd, 1, 0), 0);
	EQUAL(fi_eq_write(eq, FI_NOTIFY, &in, sizeof(in), 0), sizeof(in));
	EQUAL(poll(&pfd, 1, 1000), 1);
	EQUAL(fi_trywait(n.fabric, fids, 1), -FI_EAGAIN);
	EQUAL(fi_eq_read(eq, &event, &out, 4, 0), -FI_ETOOSMALL);
	/* Nobody has to want the bytes (fi_multinode_coll of 1.17 does not). */
	event = 77;
	EQUAL(fi_eq_read(eq, &event, NULL, 0, FI_PEEK), 0);
	EQUAL(event, FI_NOTIFY);
	EQUAL(fi_eq_read(eq, &event, &out, sizeof(out), FI_PEEK), sizeof(out));
	EQUAL(fi_eq_sread(eq, &event, &out, sizeof(out), 1000, 0), sizeof(out));
	CHECK(event == FI_NOTIFY && memcmp(&in, &out, sizeof(in)) == 0);
	double start = abi_now();
	EQUAL(fi_eq_sread(eq, &event, &out, sizeof(out), 50, 0), -FI_EAGAIN);
	CHECK(abi_now() - start >= 0.045);
	struct fi_eq_err_entry err;
	EQUAL(fi_eq_readerr(eq, &err, 0), -FI_EAGAIN);
	char text[64];
	CHECK(fi_eq_strerror(eq, FI_EINVAL, NULL, text, sizeof(text)) != NULL);
	/* Insertions reported as events. */
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .flags = FI_EVENT};
	struct fid_av *av;
	EQUAL(fi_av_open(n.domain, &av_attr, &av, NULL), 0);
	EQUAL(fi_av_bind(av, &eq->fid, 0), 0);
	fi_addr_t addr;
	EQUAL(fi_av_insert(av, &n.name, 1, &addr, 0, &start), 0);
	EQUAL(fi_eq_sread(eq, &event, &out, sizeof(out), 1000, 0), sizeof(out));
	CHECK(event == FI_AV_COMPLETE && out.fid == &av->fid && out.context == &start && out.data == 1);
	EQUAL(fi_close(&eq->fid), -FI_EBUSY);
	EQUAL(fi_close(&av->fid), 0);
	EQUAL(fi_close(&eq->fid), 0);
	abi_close(&n);
}

static void queues_and_counters(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	abi_open(&n, &want);
	enum fi_cq_format formats[] = {FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA,
				       FI_CQ_FORMAT_TAGGED};
	enum fi_wait_obj waits[] = {FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD};
	for (size_t size = 0; size <= 65536; size = size ? size * 16 : 1)
		for (int f = 0; f < 5; f++) {
			struct fi_cq_attr attr = {.size = size, .format = formats[f], .wait_obj = waits[f % 3]};
			struct fid_cq *cq;
			EQUAL(fi_cq_open(n.domain, &attr, &cq, NULL), 0);
			struct fi_cq_tagged_entry entry;
			EQUAL(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
			EQUAL(fi_cq_read(cq, NULL, 0), -FI_EAGAIN);
			if (waits[f % 3] == FI_WAIT_NONE) {
				EQUAL(fi_cq_sread(cq, &entry, 1, NULL, 10), -FI_ENOSYS);
			} else {
				EQUAL(fi_cq_sread(cq, &entry, 1, NULL, 10), -FI_EAGAIN);
				EQUAL(fi_cq_signal(cq), 0);
				EQUAL(fi_cq_sread(cq, &entry, 1, NULL, -1), -FI_EAGAIN);
			}
			struct fi_cq_err_entry err;
			memset(&err, 0xa5, sizeof(err));
			EQUAL(fi_cq_readerr(cq, &err, 0), -FI_EAGAIN);
			CHECK(fi_cq_strerror(cq, 4, (void *)1, NULL, 0) != NULL);
			char text[8];
			CHECK(fi_cq_strerror(cq, 99999, NULL, text, sizeof(text)) == text);
			EQUAL(fi_close(&cq->fid), 0);
		}
	struct fi_cq_attr bad = {.wait_obj = (enum fi_wait_obj)99};
	struct fid_cq *cq;
	EQUAL(fi_cq_open(n.domain, &bad, &cq, NULL), -FI_ENOSYS);
	/* Flags that mean nothing, and a hint that does. */
	struct fi_cq_attr cq_attr = {.flags = 1ULL << 50};
	struct fi_eq_attr eq_attr = {.flags = 1ULL << 50};
	struct fi_cntr_attr flagged = {.flags = 1ULL << 50};
	struct fid_eq *eq;
	struct fid_cntr *none;
	EQUAL(fi_cq_open(n.domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	EQUAL(fi_eq_open(n.fabric, &eq_attr, &eq, NULL), -FI_EINVAL);
	EQUAL(fi_cntr_open(n.domain, &flagged, &none, NULL), -FI_EINVAL);
	cq_attr.flags = FI_AFFINITY;
	EQUAL(fi_cq_open(n.domain, &cq_attr, &cq, NULL), 0);
	EQUAL(fi_close(&cq->fid), 0);
	eq_attr.flags = FI_AFFINITY | FI_WRITE;
	EQUAL(fi_eq_open(n.fabric, &eq_attr, &eq, NULL), 0);
	EQUAL(fi_close(&eq->fid), 0);

	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n.domain, &attr, &cntr, NULL), 0);
	EQUAL(fi_cntr_read(cntr), 0);
	EQUAL(fi_cntr_set(cntr, 10), 0);
	EQUAL(fi_cntr_add(cntr, 5), 0);
	EQUAL(fi_cntr_read(cntr), 15);
	EQUAL(fi_cntr_wait(cntr, 15, 0), 0);
	EQUAL(fi_cntr_wait(cntr, 16, 0), -FI_ETIMEDOUT);
	EQUAL(fi_cntr_wait(cntr, 16, 20), -FI_ETIMEDOUT);
	EQUAL(fi_cntr_seterr(cntr, 2), 0);
	EQUAL(fi_cntr_adderr(cntr, 3), 0);
	EQUAL(fi_cntr_readerr(cntr), 5);
	EQUAL(fi_close(&cntr->fid), 0);
	abi_close(&n);
}

static void memory_regions(void)
{
	struct want want = {.caps = FI_RMA};
	struct node n;
	abi_open(&n, &want);
	char buf[4096];
	uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
	uint64_t keys[] = {0, 1, 1000, 1ULL << 63, (uint64_t)(uintptr_t)buf};
	struct fid_mr *mrs[5], *mr;
	for (int i = 0; i < 5; i++) {
		EQUAL(fi_mr_reg(n.domain, buf, sizeof(buf), remote, 0, keys[i], 0, &mrs[i], NULL), 0);
		EQUAL(fi_mr_key(mrs[i]), keys[i]);
		EQUAL(fi_mr_reg(n.domain, buf, 1, remote, 0, keys[i], 0, &mr, NULL), -FI_ENOKEY);
	}
	EQUAL(fi_close(&n.domain->fid), -FI_EBUSY);
	EQUAL(fi_close(&mrs[3]->fid), 0);
	EQUAL(fi_mr_reg(n.domain, buf, 1, remote, 0, keys[3], 0, &mrs[3], NULL), 0);
	for (int i = 0; i < 5; i++)
		EQUAL(fi_close(&mrs[i]->fid), 0);
	/* Local regions may share a key. */
	EQUAL(fi_mr_reg(n.domain, buf, 1, FI_SEND | FI_RECV, 0, 0, 0, &mrs[0], NULL), 0);
	EQUAL(fi_mr_reg(n.domain, buf, 1, FI_SEND | FI_RECV | FI_READ, 0, 0, 0, &mrs[1], NULL), 0);
	EQUAL(fi_close(&mrs[0]->fid), 0);
	EQUAL(fi_close(&mrs[1]->fid), 0);
	/* The whole address space, and several pieces. */
	EQUAL(fi_mr_reg(n.domain, NULL, SIZE_MAX, remote, 0, 7, 0, &mr, NULL), 0);
	EQUAL(fi_mr_bind(mr, &n.ep->fid, 0), 0);
	EQUAL(fi_mr_enable(mr), 0);
	EQUAL(fi_close(&mr->fid), 0);
	struct iovec iov[5] = {{buf, 10}, {buf + 100, 20}, {buf + 200, 1}, {buf + 300, 1}, {buf + 400, 1}};
	EQUAL(fi_mr_regv(n.domain, iov, 4, remote, 0, 7, 0, &mr, NULL), 0);
	EQUAL(fi_close(&mr->fid), 0);
	EQUAL(fi_mr_regv(n.domain, iov, 5, remote, 0, 7, 0, &mr, NULL), -FI_EINVAL);
	struct fi_mr_attr attr = {.mr_iov = iov, .iov_count = 1, .access = remote, .requested_key = 9};
	EQUAL(fi_mr_regattr(n.domain, &attr, 0, &mr), 0);
	EQUAL(fi_mr_key(mr), 9);
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&n);
}

static void options(void)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED};
	struct node n;
	abi_open(&n, &want);
	size_t value = 16384, got = 0, len = sizeof(got);
	EQUAL(fi_setopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), 0);
	EQUAL(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &len), 0);
	EQUAL(got, value);
	len = 1;
	EQUAL(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &len), -FI_ETOOSMALL);
	EQUAL(fi_setopt(&n.ep->fid, FI_OPT_ENDPOINT, 12345, &value, sizeof(value)), -FI_ENOPROTOOPT);
	EQUAL(fi_setopt(&n.ep->fid, 99, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), -FI_ENOPROTOOPT);
	/* A bool is one byte (FI_OPT_SHARED_MEMORY_PERMITTED, which older headers lack). */
	enum { shared_memory_permitted = 11 };
	unsigned char permitted[2] = {7, 7};
	len = 0;
	EQUAL(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, shared_memory_permitted, permitted, &len), -FI_ETOOSMALL);
	EQUAL(len, 1);
	EQUAL(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, shared_memory_permitted, permitted, &len), 0);
	CHECK(permitted[0] == 1 && permitted[1] == 7);
	/* Memory of devices does not concern this endpoint. */
	int p2p;
	len = sizeof(p2p);
	EQUAL(fi_getopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, &len), -FI_EOPNOTSUPP);
	/* The name, into no room and into too much. */
	len = 0;
	EQUAL(fi_getname(&n.ep->fid, NULL, &len), -FI_ETOOSMALL);
	EQUAL(len, sizeof(struct sockaddr_in));
	char room[1024];
	len = sizeof(room);
	EQUAL(fi_getname(&n.ep->fid, room, &len), 0);
	EQUAL(len, sizeof(struct sockaddr_in));
	/* What is not there says so. */
	EQUAL(fi_enable(n.ep), 0);
	CHECK(n.ep->ops->tx_size_left(n.ep) > 0 && n.ep->ops->rx_size_left(n.ep) > 0);
	size_t count = 77;
	EQUAL(fi_atomicvalid(n.ep, FI_UINT64, FI_CSWAP, &count), -FI_EOPNOTSUPP);
	EQUAL(count, 0);
	EQUAL(fi_fetch_atomicvalid(n.ep, FI_UINT64, FI_SUM, &count), 0);
	CHECK(count > 0);
	uint64_t flags = FI_TRANSMIT;
	EQUAL(fi_control(&n.ep->fid, FI_GETOPSFLAG, &flags), 0);
	flags = FI_TRANSMIT | FI_COMPLETION;
	EQUAL(fi_control(&n.ep->fid, FI_SETOPSFLAG, &flags), 0);
	flags = FI_TRANSMIT;
	EQUAL(fi_control(&n.ep->fid, FI_GETOPSFLAG, &flags), 0);
	EQUAL(flags, FI_COMPLETION);
	void *ops = NULL;
	EQUAL(fi_open_ops(&n.domain->fid, "efa features", 0, &ops, NULL), -FI_ENOSYS);
	struct fid_stx *stx;
	EQUAL(fi_stx_context(n.domain, NULL, &stx, NULL), -FI_ENOSYS);
	/* Not enough to be enabled. */
	struct fid_ep *ep;
	EQUAL(fi_endpoint(n.domain, n.info, &ep, NULL), 0);
	EQUAL(fi_enable(ep), -FI_ENOAV);
	EQUAL(fi_ep_bind(ep, &n.av->fid, 0), 0);
	EQUAL(fi_enable(ep), -FI_ENOCQ);
	EQUAL(fi_send(ep, room, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	EQUAL(fi_recv(ep, room, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	EQUAL(fi_getname(&ep->fid, room, &len), -FI_EOPBADSTATE);
	EQUAL(fi_close(&ep->fid), 0);
	/* Nobody there. */
	EQUAL(fi_send(n.ep, room, 1, NULL, 12345, NULL), -FI_EINVAL);
	EQUAL(fi_cancel(&n.ep->fid, room), -FI_ENOENT);
	abi_close(&n);
}

/* The calls of an alias leave out those of its flags that mean nothing with them, as an endpoint's do. */
static void aliases(void)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED};
	struct node n;
	abi_open(&n, &want);
	fi_addr_t self = abi_insert(&n, &n.name);
	struct fid_ep *alias = NULL;
	struct fi_cq_tagged_entry entry;
	struct fi_context context;
	char buf[64] = "abc";
	EQUAL(fi_ep_alias(n.ep, &alias, FI_RECV | FI_MULTI_RECV), 0);
	EQUAL(fi_trecv(alias, buf + 8, 8, NULL, FI_ADDR_UNSPEC, 77, 0, &context), 0);
	RETRY(&n, fi_tinject(n.ep, buf, 3, self, 77));
	abi_expect(&n, NULL, &entry);
	CHECK(entry.op_context == &context && entry.len == 3 && !(entry.flags & FI_MULTI_RECV));
	/* With an untagged receive it means something. */
	size_t least = 4;
	EQUAL(fi_setopt(&n.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
	EQUAL(fi_recv(alias, buf + 16, 6, NULL, FI_ADDR_UNSPEC, &context), 0);
	RETRY(&n, fi_inject(n.ep, buf, 3, self));
	abi_expect(&n, NULL, &entry);
	CHECK(entry.flags & FI_MULTI_RECV);
	EQUAL(fi_close(&alias->fid), 0);
	abi_close(&n);
}

/* The call that watches a descriptor, of which the next `watches` succeed. The provider calls it as well. */
static _Atomic int watches = 1 << 30;

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	if (operation == EPOLL_CTL_ADD && watches-- <= 0) {
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, set, operation, fd, event);
}

/* An endpoint that cannot be enabled, because the system does not watch its sockets, can be enabled later. */
static void a_failed_enable_can_be_repeated(enum fi_progress progress)
{
	struct want want = {.caps = FI_MSG, .progress = progress, .threading = FI_THREAD_SAFE, .wait = FI_WAIT_FD};
	struct node n;
	abi_open(&n, &want);
	int failed = 0;
	for (int rc = -1, k = 0; rc != 0; k++) {
		struct fid_ep *ep;
		struct fi_cq_tagged_entry entry;
		struct sockaddr_in name;
		size_t len = sizeof(name);
		char buf[8];
		EQUAL(fi_endpoint(n.domain, n.info, &ep, NULL), 0);
		EQUAL(fi_ep_bind(ep, &n.av->fid, 0), 0);
		EQUAL(fi_ep_bind(ep, &n.cq->fid, FI_TRANSMIT | FI_RECV), 0);
		watches = k;
		rc = fi_enable(ep);
		watches = 1 << 30;
		if (rc != 0) {
			failed++;
			EQUAL(fi_getname(&ep->fid, &name, &len), -FI_EOPBADSTATE);
			EQUAL(fi_enable(ep), 0);
		}
		/* It works, also while the application sleeps. */
		len = sizeof(name);
		EQUAL(fi_getname(&ep->fid, &name, &len), 0);
		fi_addr_t to = abi_insert(&n, &name);
		EQUAL(fi_recv(ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		ssize_t sent;
		while ((sent = fi_inject(n.ep, "x", 1, to)) == -FI_EAGAIN)
			(void)fi_cq_read(n.cq, NULL, 0);
		EQUAL(sent, 0);
		EQUAL(fi_cq_sread(n.cq, &entry, 1, NULL, (int)(PATIENCE * 1000)), 1);
		EQUAL(fi_close(&ep->fid), 0);
	}
	CHECK(failed > 0);
	abi_close(&n);
}

static void failed_enables(void)
{
	a_failed_enable_can_be_repeated(FI_PROGRESS_MANUAL);
	a_failed_enable_can_be_repeated(FI_PROGRESS_AUTO);
}

/* An endpoint at an address of this host that is no interface's own. */
static void another_local_address(void)
{
	struct want want = {.caps = FI_MSG, .source = "127.0.1.1"};
	struct node n;
	struct fi_cq_tagged_entry entry;
	char buf[8];
	abi_open(&n, &want);
	EQUAL(ntohl(n.name.sin_addr.s_addr), 0x7f000101);
	fi_addr_t self = abi_insert(&n, &n.name);
	EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&n, fi_inject(n.ep, "x", 1, self));
	abi_expect(&n, NULL, &entry);
	abi_close(&n);
}

static void teardown_order(void)
{
	struct want want = {.caps = FI_MSG, .wait = FI_WAIT_FD};
	struct node n;
	abi_open(&n, &want);
	EQUAL(fi_close(&n.fabric->fid), -FI_EBUSY);
	EQUAL(fi_close(&n.domain->fid), -FI_EBUSY);
	EQUAL(fi_close(&n.av->fid), -FI_EBUSY);
	EQUAL(fi_close(&n.cq->fid), -FI_EBUSY);
	abi_close(&n);
	/* Many endpoints from one info, on one vector and one queue. */
	abi_open(&n, &want);
	struct fid_ep *eps[8];
	struct sockaddr_in names[8];
	for (int i = 0; i < 8; i++) {
		EQUAL(fi_endpoint(n.domain, n.info, &eps[i], NULL), 0);
		EQUAL(fi_ep_bind(eps[i], &n.av->fid, 0), 0);
		EQUAL(fi_ep_bind(eps[i], &n.cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EQUAL(fi_enable(eps[i]), 0);
		size_t len = sizeof(names[i]);
		EQUAL(fi_getname(&eps[i]->fid, &names[i], &len), 0);
		for (int j = 0; j < i; j++)
			CHECK(names[i].sin_port != names[j].sin_port);
	}
	struct fi_cq_tagged_entry entry;
	EQUAL(fi_cq_read(n.cq, &entry, 1), -FI_EAGAIN);
	for (int i = 0; i < 8; i++)
		EQUAL(fi_close(&eps[i]->fid), 0);
	EQUAL(fi_cq_read(n.cq, &entry, 1), -FI_EAGAIN);
	abi_close(&n);
}

/* Endpoints on domains of their own, at every level of threading that there is in 1.x. */
static void domains_and_threading(void)
{
	enum { FID = 2, ENDPOINT = 5 };
	enum fi_threading levels[] = {FI_THREAD_SAFE, (enum fi_threading)FID, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION,
				      (enum fi_threading)ENDPOINT};
	struct node n;
	struct want want = {.caps = FI_MSG};
	abi_open(&n, &want);
	for (int i = 0; i < 5; i++) {
		struct want other = {.caps = FI_MSG, .threading = levels[i]};
		struct fi_info *info = abi_info(&other);
		EQUAL(info->domain_attr->threading, levels[i]);
		/* Two domains of one fabric, an endpoint on each. */
		struct fid_domain *domains[2];
		struct fid_av *avs[2];
		struct fid_cq *cqs[2];
		struct fid_ep *eps[2];
		struct sockaddr_in names[2];
		for (int d = 0; d < 2; d++) {
			struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
			struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
			size_t len = sizeof(names[d]);
			EQUAL(fi_domain(n.fabric, info, &domains[d], NULL), 0);
			EQUAL(fi_av_open(domains[d], &av_attr, &avs[d], NULL), 0);
			EQUAL(fi_cq_open(domains[d], &cq_attr, &cqs[d], NULL), 0);
			EQUAL(fi_endpoint(domains[d], info, &eps[d], NULL), 0);
			EQUAL(fi_ep_bind(eps[d], &avs[d]->fid, 0), 0);
			EQUAL(fi_ep_bind(eps[d], &cqs[d]->fid, FI_TRANSMIT | FI_RECV), 0);
			EQUAL(fi_enable(eps[d]), 0);
			EQUAL(fi_getname(&eps[d]->fid, &names[d], &len), 0);
		}
		EQUAL(fi_close(&n.fabric->fid), -FI_EBUSY);
		fi_addr_t to;
		EQUAL(fi_av_insert(avs[0], &names[1], 1, &to, 0, NULL), 1);
		char out[8] = "domains", in[8] = "";
		struct fi_cq_tagged_entry entry;
		EQUAL(fi_recv(eps[1], in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		ssize_t rc;
		double end = abi_now() + PATIENCE;
		while ((rc = fi_send(eps[0], out, sizeof(out), NULL, to, NULL)) == -FI_EAGAIN)
			(void)fi_cq_read(cqs[0], NULL, 0);
		EQUAL(rc, 0);
		for (int done = 0; done < 2;) {
			done += fi_cq_read(cqs[0], &entry, 1) == 1;
			done += fi_cq_read(cqs[1], &entry, 1) == 1;
			CHECK(abi_now() < end);
		}
		CHECK(strcmp(in, out) == 0);
		for (int d = 0; d < 2; d++) {
			EQUAL(fi_close(&eps[d]->fid), 0);
			EQUAL(fi_close(&cqs[d]->fid), 0);
			EQUAL(fi_close(&avs[d]->fid), 0);
			EQUAL(fi_close(&domains[d]->fid), 0);
		}
		fi_freeinfo(info);
	}
	abi_close(&n);
}

/* The same over IPv6, if this host has it. */
static void ipv6(void)
{
	struct sockaddr_in6 local = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int probe = socket(AF_INET6, SOCK_DGRAM, 0), there = probe >= 0 && bind(probe, (void *)&local, sizeof(local)) == 0;
	if (probe >= 0)
		close(probe);
	if (!there)
		return;
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->addr_format = FI_SOCKADDR_IN6;
	hints->fabric_attr->prov_name = strdup("squall");
	EQUAL(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info), -FI_ENODATA);
	EQUAL(fi_getinfo(FI_VERSION(1, 17), "::1", NULL, FI_SOURCE, hints, &info), 0);
	EQUAL(info->addr_format, FI_SOCKADDR_IN6);
	EQUAL(info->src_addrlen, sizeof(local));
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *eps[2];
	struct sockaddr_in6 names[2], found;
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	EQUAL(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	EQUAL(fi_domain(fabric, info, &domain, NULL), 0);
	EQUAL(fi_av_open(domain, &av_attr, &av, NULL), 0);
	EQUAL(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
	for (int i = 0; i < 2; i++) {
		size_t len = sizeof(names[i]);
		EQUAL(fi_endpoint(domain, info, &eps[i], NULL), 0);
		EQUAL(fi_ep_bind(eps[i], &av->fid, 0), 0);
		EQUAL(fi_ep_bind(eps[i], &cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EQUAL(fi_enable(eps[i]), 0);
		EQUAL(fi_getname(&eps[i]->fid, &names[i], &len), 0);
		EQUAL(len, sizeof(names[i]));
		CHECK(names[i].sin6_family == AF_INET6 && names[i].sin6_port != 0);
	}
	fi_addr_t addrs[2], by_name;
	EQUAL(fi_av_insert(av, names, 2, addrs, 0, NULL), 2);
	size_t len = sizeof(found);
	EQUAL(fi_av_lookup(av, addrs[1], &found, &len), 0);
	EQUAL(len, sizeof(found));
	CHECK(memcmp(&found.sin6_addr, &names[1].sin6_addr, 16) == 0 && found.sin6_port == names[1].sin6_port);
	/* Text, whole and into too little room. */
	char text[64], expected[64], little[8];
	snprintf(expected, sizeof(expected), "fi_sockaddr_in6://[::1]:%u", ntohs(names[0].sin6_port));
	len = sizeof(text);
	CHECK(fi_av_straddr(av, &names[0], text, &len) == text && strcmp(text, expected) == 0);
	EQUAL(len, strlen(expected) + 1);
	len = sizeof(little);
	CHECK(fi_av_straddr(av, &names[0], little, &len) == little && strlen(little) < sizeof(little));
	EQUAL(len, strlen(expected) + 1);
	EQUAL(fi_av_insertsvc(av, "::1", "9000", &by_name, 0, NULL), 1);
	len = sizeof(found);
	EQUAL(fi_av_lookup(av, by_name, &found, &len), 0);
	CHECK(found.sin6_family == AF_INET6 && ntohs(found.sin6_port) == 9000);
	/* Bytes of every size, inline to rendezvous. */
	enum { MOST = 300000 };
	unsigned char *out = malloc(MOST), *in = malloc(MOST);
	CHECK(out && in);
	for (size_t size = 1; size <= MOST; size = size * 17 + 3) {
		struct fi_cq_tagged_entry entry;
		abi_fill(out, size, (unsigned)size);
		memset(in, 0, size);
		EQUAL(fi_recv(eps[1], in, MOST, NULL, FI_ADDR_UNSPEC, NULL), 0);
		ssize_t rc;
		double end = abi_now() + PATIENCE;
		while ((rc = fi_send(eps[0], out, size, NULL, addrs[1], NULL)) == -FI_EAGAIN)
			(void)fi_cq_read(cq, NULL, 0);
		EQUAL(rc, 0);
		for (int done = 0; done < 2;) {
			CHECK(abi_now() < end);
			if ((rc = fi_cq_read(cq, &entry, 1)) != -FI_EAGAIN) {
				EQUAL(rc, 1);
				done++;
			}
		}
		abi_verify(in, size, (unsigned)size);
	}
	free(out);
	free(in);
	for (int i = 0; i < 2; i++)
		EQUAL(fi_close(&eps[i]->fid), 0);
	EQUAL(fi_close(&cq->fid), 0);
	EQUAL(fi_close(&av->fid), 0);
	EQUAL(fi_close(&domain->fid), 0);
	EQUAL(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

int main(void)
{
	RUN(address_vectors);
	RUN(event_queues);
	RUN(queues_and_counters);
	RUN(memory_regions);
	RUN(options);
	RUN(aliases);
	RUN(failed_enables);
	RUN(another_local_address);
	RUN(teardown_order);
	RUN(domains_and_threading);
	RUN(ipv6);
	printf("%d checks\n", abi_checks);
	return 0;
}
