/* FI_PEER (fi_peer(3)): this program is the provider that owns the completion queue and the receives. Under a libfabric
 * before 2.3, whose structures were others, all of it is refused. */
#include "abi.h"

/* As in rdma/providers/fi_peer.h of 2.3 and later, which older headers have not. */
struct peer_cq;
struct cq_owner {
	size_t size;
	ssize_t (*write)(struct peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
			 uint64_t tag, fi_addr_t src);
	ssize_t (*writeerr)(struct peer_cq *cq, const struct fi_cq_err_entry *err);
};
struct peer_cq {
	struct fid fid;
	struct cq_owner *owner_ops;
};
struct peer_srx;
struct rx_entry {
	struct peer_srx *srx;
	fi_addr_t addr;
	size_t msg_size;
	uint64_t tag, cq_data, flags;
	void *context;
	size_t count;
	void **desc;
	void *peer_context, *owner_context;
	struct iovec *iov;
};
struct match_attr {
	fi_addr_t addr;
	size_t msg_size;
	uint64_t tag;
};
struct srx_owner {
	size_t size;
	int (*get_msg)(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry);
	int (*get_tag)(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry);
	int (*queue_msg)(struct rx_entry *entry);
	int (*queue_tag)(struct rx_entry *entry);
	void (*foreach_unspec_addr)(struct peer_srx *srx, fi_addr_t (*get_addr)(struct rx_entry *));
	void (*free_entry)(struct rx_entry *entry);
};
struct srx_peer {
	size_t size;
	int (*start_msg)(struct rx_entry *entry);
	int (*start_tag)(struct rx_entry *entry);
	int (*discard_msg)(struct rx_entry *entry);
	int (*discard_tag)(struct rx_entry *entry);
};
struct peer_srx {
	struct fid_ep ep_fid;
	struct srx_owner *owner_ops;
	struct srx_peer *peer_ops;
};
struct peer_context {
	size_t size;
	void *of;
};

#define PEER (1ULL << 43)
enum { MOST = 64, BIG = 100000 };

/* What was written to the owner's queue. */
static struct event {
	struct fi_cq_tagged_entry entry;
	fi_addr_t src;
	int err;
	size_t olen;
} events[MOST];
static int written, read_up_to;

static ssize_t on_write(struct peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
			uint64_t tag, fi_addr_t src)
{
	CHECK(cq->fid.context == events && written < MOST);
	events[written++] = (struct event){{context, flags, len, buf, data, tag}, src, 0, 0};
	return 0;
}

static ssize_t on_error(struct peer_cq *cq, const struct fi_cq_err_entry *err)
{
	CHECK(cq->fid.context == events && written < MOST);
	CHECK(!err->err_data && !err->err_data_size);
	events[written++] = (struct event){{err->op_context, err->flags, err->len, err->buf, err->data, err->tag},
					   FI_ADDR_NOTAVAIL, err->err, err->olen};
	return 0;
}

static struct cq_owner cq_ops = {sizeof(struct cq_owner), on_write, on_error};
static struct peer_cq queue = {.fid = {.context = events}, .owner_ops = &cq_ops};

/* Receives, and messages that wait for one: in the order in which they came. */
static struct receive {
	struct rx_entry entry;
	struct iovec iov[2];
	int posted, waits, lent, tagged;
} receives[MOST];
static int inside, freed, asked, renewed;

static struct receive *receive_of(struct rx_entry *entry)
{
	return (struct receive *)entry;
}

static struct receive *blank(int tagged)
{
	for (int i = 0; i < MOST; i++) {
		struct receive *r = &receives[i];
		if (r->posted || r->waits || r->lent)
			continue;
		memset(r, 0, sizeof(*r));
		r->tagged = tagged;
		r->entry.iov = r->iov;
		r->entry.addr = FI_ADDR_UNSPEC;
		r->entry.flags = FI_RECV | FI_COMPLETION | (tagged ? FI_TAGGED : FI_MSG);
		return r;
	}
	FAIL("no room for a receive");
}

static int get(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry, int tagged)
{
	CHECK(inside && srx->ep_fid.fid.context == receives);
	asked++;
	for (int i = 0; i < MOST; i++) {
		struct receive *r = &receives[i];
		if (!r->posted || r->tagged != tagged || (tagged && r->entry.tag != attr->tag))
			continue;
		r->posted = 0;
		r->lent = 1;
		r->entry.msg_size = attr->msg_size;
		r->entry.addr = attr->addr;
		*entry = &r->entry;
		return 0;
	}
	struct receive *r = blank(tagged);
	r->lent = 1;
	r->entry.addr = attr->addr;
	r->entry.msg_size = attr->msg_size;
	r->entry.tag = attr->tag;
	*entry = &r->entry;
	return -FI_ENOENT;
}

static int get_msg(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry)
{
	return get(srx, attr, entry, 0);
}

static int get_tag(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry)
{
	return get(srx, attr, entry, 1);
}

static int queue_any(struct rx_entry *entry, int tagged)
{
	struct receive *r = receive_of(entry);
	CHECK(inside && r->lent && r->tagged == tagged && entry->peer_context);
	r->lent = 0;
	r->waits = 1;
	return 0;
}

static int queue_msg(struct rx_entry *entry)
{
	return queue_any(entry, 0);
}

static int queue_tag(struct rx_entry *entry)
{
	return queue_any(entry, 1);
}

static void renew(struct peer_srx *srx, fi_addr_t (*get_addr)(struct rx_entry *))
{
	CHECK(inside && srx->ep_fid.fid.context == receives);
	for (int i = 0; i < MOST; i++)
		if (receives[i].waits && receives[i].entry.addr == FI_ADDR_UNSPEC) {
			receives[i].entry.addr = get_addr(&receives[i].entry);
			renewed++;
		}
}

static void free_entry(struct rx_entry *entry)
{
	struct receive *r = receive_of(entry);
	CHECK(inside && r->lent);
	r->lent = 0;
	freed++;
}

static struct srx_owner srx_ops = {sizeof(struct srx_owner), get_msg, get_tag, queue_msg, queue_tag, renew, free_entry};
static struct peer_srx shared = {.ep_fid = {.fid = {.context = receives}}, .owner_ops = &srx_ops};

/* A, whose queue and receives are ours, and B, who has her own. */
static struct node a, b;
static struct fid_ep *srx;
static fi_addr_t to_a, to_b;
enum { B_ID = 4711 };

static void drive(void)
{
	/* Whoever makes a peer move holds the owner's lock: here it is a mark. */
	inside = 1;
	EQUAL(fi_cq_read(a.cq, NULL, 0), 0);
	inside = 0;
	struct fi_cq_tagged_entry entry;
	if (b.cq)
		(void)fi_cq_read(b.cq, &entry, 1);
}

static struct event *next_event(void)
{
	double end = abi_now() + PATIENCE;
	while (read_up_to == written) {
		drive();
		if (abi_now() > end)
			FAIL("nothing was written to the owner's queue in %.0f s", PATIENCE);
	}
	struct event *e = &events[read_up_to++];
	if (read_up_to == written)
		read_up_to = written = 0;
	return e;
}

static void no_event(void)
{
	for (int i = 0; i < 200; i++)
		drive();
	EQUAL(written, read_up_to);
}

static fi_addr_t insert_as(struct node *n, const struct sockaddr_in *name, uint64_t id)
{
	fi_addr_t addr = id;
	EQUAL(fi_av_insert(n->av, name, 1, &addr, FI_AV_USER_ID, NULL), 1);
	return addr;
}

static void open_a(int with_receives)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE | PEER};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr attr = {.flags = PEER};
	struct fi_rx_attr rx = {.op_flags = PEER};
	struct peer_context cq_context = {sizeof(cq_context), &queue}, srx_context = {sizeof(srx_context), &shared};
	memset(&a, 0, sizeof(a));
	a.info = abi_info(&want);
	CHECK(a.info->caps & PEER);
	EQUAL(a.info->rx_attr->total_buffered_recv, 0);
	EQUAL(fi_fabric(a.info->fabric_attr, &a.fabric, NULL), 0);
	EQUAL(fi_domain(a.fabric, a.info, &a.domain, NULL), 0);
	EQUAL(fi_av_open(a.domain, &av_attr, &a.av, NULL), 0);
	EQUAL(fi_cq_open(a.domain, &attr, &a.cq, &cq_context), 0);
	memset(&cq_context, 0xff, sizeof(cq_context));
	EQUAL(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	srx = NULL;
	if (with_receives) {
		EQUAL(fi_srx_context(a.domain, &rx, &srx, &srx_context), 0);
		memset(&srx_context, 0xff, sizeof(srx_context));
		CHECK(shared.peer_ops && shared.peer_ops->size == sizeof(struct srx_peer));
		EQUAL(srx->fid.fclass, FI_CLASS_SRX_CTX);
		EQUAL(fi_ep_bind(a.ep, &srx->fid, 0), 0);
	}
	EQUAL(fi_enable(a.ep), 0);
	size_t len = sizeof(a.name);
	EQUAL(fi_getname(&a.ep->fid, &a.name, &len), 0);
	memset(receives, 0, sizeof(receives));
	written = read_up_to = asked = freed = renewed = 0;
}

static void open_both(int with_receives, int acquainted)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE};
	open_a(with_receives);
	abi_open(&b, &want);
	to_a = abi_insert(&b, &a.name);
	to_b = acquainted ? insert_as(&a, &b.name, B_ID) : FI_ADDR_UNSPEC;
	EQUAL(to_b, acquainted ? 0 : FI_ADDR_UNSPEC);
}

static void close_a(void)
{
	if (srx)
		EQUAL(fi_close(&srx->fid), -FI_EBUSY);
	EQUAL(fi_close(&a.ep->fid), 0);
	if (srx)
		EQUAL(fi_close(&srx->fid), 0);
	EQUAL(fi_close(&a.cq->fid), 0);
	EQUAL(fi_close(&a.av->fid), 0);
	EQUAL(fi_close(&a.domain->fid), 0);
	EQUAL(fi_close(&a.fabric->fid), 0);
	fi_freeinfo(a.info);
}

static void close_both(void)
{
	close_a();
	abi_close(&b);
}

static int known(void)
{
	return FI_VERSION_GE(fi_version(), FI_VERSION(2, 3));
}

static void what_is_refused(void)
{
	struct want want = {.caps = FI_MSG};
	struct node n;
	struct fi_cq_attr attr = {.flags = PEER};
	struct fi_rx_attr rx = {.op_flags = PEER}, none = {0};
	struct peer_context nothing = {sizeof(nothing), NULL}, something = {sizeof(something), &queue};
	struct fid_cq *cq;
	struct fid_ep *context;
	abi_open(&n, &want);
	EQUAL(fi_cq_open(n.domain, &attr, &cq, NULL), -FI_EINVAL);
	EQUAL(fi_cq_open(n.domain, &attr, &cq, &nothing), -FI_EINVAL);
	EQUAL(fi_srx_context(n.domain, &rx, &context, NULL), -FI_EINVAL);
	EQUAL(fi_srx_context(n.domain, &rx, &context, &nothing), -FI_EINVAL);
	/* Shared receive contexts of our own are not there. */
	EQUAL(fi_srx_context(n.domain, &none, &context, NULL), -FI_ENOSYS);
	struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP, .flags = PEER};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n.domain, &cntr_attr, &cntr, &something), -FI_EINVAL);
	struct fi_eq_attr eq_attr = {.flags = PEER};
	struct fid_eq *eq;
	EQUAL(fi_eq_open(n.fabric, &eq_attr, &eq, &something), -FI_EINVAL);
	if (!known()) {
		struct fi_info *hints = fi_allocinfo(), *info = NULL;
		hints->caps = FI_MSG | PEER;
		hints->fabric_attr->prov_name = strdup("squall");
		EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
		fi_freeinfo(hints);
		EQUAL(fi_cq_open(n.domain, &attr, &cq, &something), -FI_EINVAL);
	}
	abi_close(&n);
}

/* Completions and errors of every kind are written to the owner's queue, which alone can be read. */
static void completions_are_the_owners(void)
{
	static unsigned char out[64], in[64];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = {0};
	int mark[4];
	open_both(0, 1);
	EQUAL(fi_cq_read(a.cq, &entry, 1), -FI_ENOSYS);
	EQUAL(fi_cq_readerr(a.cq, &err, 0), -FI_ENOSYS);
	EQUAL(fi_cq_sread(a.cq, &entry, 1, NULL, 0), -FI_ENOSYS);
	abi_fill(out, sizeof(out), 1);
	EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, to_b, 7, 0, &mark[0]), 0);
	EQUAL(fi_trecv(a.ep, in, 8, NULL, to_b, 8, 0, &mark[1]), 0);
	RETRY(&b, fi_tsenddata(b.ep, out, sizeof(out), NULL, 99, to_a, 7, NULL));
	RETRY(&b, fi_tsend(b.ep, out, sizeof(out), NULL, to_a, 8, NULL));
	struct event *e = next_event();
	CHECK(e->entry.op_context == &mark[0] && e->entry.buf == in && !e->err);
	EQUAL(e->entry.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	EQUAL(e->entry.len, sizeof(out));
	EQUAL(e->entry.data, 99);
	EQUAL(e->entry.tag, 7);
	/* By what the owner calls the sender. */
	EQUAL(e->src, B_ID);
	abi_verify(in + 8, 0, 1);
	e = next_event();
	CHECK(e->entry.op_context == &mark[1]);
	EQUAL(e->err, FI_ETRUNC);
	EQUAL(e->olen, sizeof(out) - 8);
	EQUAL(fi_recv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(fi_send(a.ep, out, sizeof(out), NULL, to_b, &mark[2]), 0);
	e = next_event();
	CHECK(e->entry.op_context == &mark[2] && !e->err);
	EQUAL(e->entry.flags, FI_SEND | FI_MSG);
	EQUAL(fi_read(a.ep, in, 8, NULL, to_b, 0, 12345, &mark[3]), 0);
	e = next_event();
	CHECK(e->entry.op_context == &mark[3]);
	EQUAL(e->err, FI_EKEYREJECTED);
	EQUAL(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &mark[0]), 0);
	EQUAL(fi_cancel(&a.ep->fid, &mark[0]), 0);
	e = next_event();
	CHECK(e->entry.op_context == &mark[0]);
	EQUAL(e->err, FI_ECANCELED);
	no_event();
	close_both();
}

static unsigned char buffer[BIG], text[BIG];

static struct receive *post(int tagged, uint64_t tag, size_t len, void *context)
{
	struct receive *r = blank(tagged);
	r->posted = 1;
	r->entry.tag = tag;
	r->entry.context = context;
	r->entry.count = 2;
	r->iov[0] = (struct iovec){buffer, len / 3};
	r->iov[1] = (struct iovec){buffer + len / 3, len - len / 3};
	return r;
}

static void send_to_a(int tagged, uint64_t tag, size_t len, int with_data)
{
	if (tagged && with_data)
		RETRY(&b, fi_tsenddata(b.ep, text, len, NULL, 55, to_a, tag, NULL));
	else if (tagged)
		RETRY(&b, fi_tsend(b.ep, text, len, NULL, to_a, tag, NULL));
	else if (with_data)
		RETRY(&b, fi_senddata(b.ep, text, len, NULL, 55, to_a, NULL));
	else
		RETRY(&b, fi_send(b.ep, text, len, NULL, to_a, NULL));
}

/* The message that waits, when it has come. */
static struct receive *await_waiting(int number)
{
	double end = abi_now() + PATIENCE;
	for (;;) {
		struct receive *found = NULL;
		int count = 0;
		for (int i = 0; i < MOST; i++)
			if (receives[i].waits) {
				found = &receives[i];
				count++;
			}
		if (count >= number)
			return found;
		drive();
		if (abi_now() > end)
			FAIL("%d messages wait at the owner, not %d", count, number);
	}
}

static void start(struct receive *r, size_t len, void *context)
{
	r->waits = 0;
	r->lent = 1;
	r->entry.context = context;
	r->entry.count = 2;
	r->iov[0] = (struct iovec){buffer, len / 3};
	r->iov[1] = (struct iovec){buffer + len / 3, len - len / 3};
	inside = 1;
	EQUAL((r->tagged ? shared.peer_ops->start_tag : shared.peer_ops->start_msg)(&r->entry), 0);
	inside = 0;
}

static void check_received(struct event *e, void *context, int tagged, size_t len, int with_data)
{
	CHECK(e->entry.op_context == context);
	EQUAL(e->err, 0);
	EQUAL(e->entry.flags, FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (with_data ? FI_REMOTE_CQ_DATA : 0));
	EQUAL(e->entry.len, len);
	EQUAL(e->entry.tag, tagged ? 3 : 0);
	if (with_data)
		EQUAL(e->entry.data, 55);
	EQUAL(e->src, B_ID);
	abi_verify(buffer, len, 1);
}

/* Every size, before and after its receive, with and without a tag and data: shown to the owner once, received once. */
static void receives_are_the_owners(void)
{
	static const size_t lens[] = {0, 1, 1000, 9000, BIG};
	int mark, want_asked = 0, want_freed = 0;
	open_both(1, 1);
	EQUAL(fi_recv(a.ep, buffer, 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
	EQUAL(fi_trecv(a.ep, buffer, 8, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_ENOSYS);
	EQUAL(fi_recv(srx, buffer, 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
	EQUAL(fi_trecv(srx, buffer, 8, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_ENOSYS);
	abi_fill(text, BIG, 1);
	for (size_t l = 0; l < sizeof(lens) / sizeof(*lens); l++)
		for (int kind = 0; kind < 8; kind++) {
			int tagged = kind & 1, early = kind & 2, with_data = !!(kind & 4);
			size_t len = lens[l];
			memset(buffer, 0, BIG);
			if (early)
				post(tagged, 3, len, &mark);
			send_to_a(tagged, 3, len, with_data);
			if (!early) {
				struct receive *r = await_waiting(1);
				EQUAL(r->entry.addr, B_ID);
				EQUAL(r->entry.msg_size, len);
				EQUAL(r->entry.tag, tagged ? 3 : 0);
				EQUAL(!!(r->entry.flags & FI_REMOTE_CQ_DATA), with_data);
				if (with_data)
					EQUAL(r->entry.cq_data, 55);
				no_event();
				start(r, len, &mark);
			}
			check_received(next_event(), &mark, tagged, len, with_data);
			EQUAL(asked, ++want_asked);
			EQUAL(freed, ++want_freed);
		}
	no_event();
	EQUAL(asked, want_asked);
	close_both();
}

/* What waits comes out in any order; what is discarded comes to nobody; what does not fit is cut. */
static void what_waits_is_the_owners_to_use(void)
{
	int mark[3];
	open_both(1, 1);
	abi_fill(text, BIG, 1);
	for (uint64_t tag = 1; tag <= 3; tag++)
		send_to_a(1, tag, tag == 2 ? BIG : 500, 0);
	await_waiting(3);
	struct receive *by_tag[4] = {0};
	for (int i = 0; i < MOST; i++)
		if (receives[i].waits)
			by_tag[receives[i].entry.tag] = &receives[i];
	CHECK(by_tag[1] && by_tag[2] && by_tag[3]);
	/* In the order in which they were sent. */
	CHECK(by_tag[1] < by_tag[2] && by_tag[2] < by_tag[3]);
	inside = 1;
	EQUAL(shared.peer_ops->discard_tag(&by_tag[2]->entry), 0);
	inside = 0;
	by_tag[2]->waits = 0;
	memset(buffer, 0, BIG);
	start(by_tag[3], 500, &mark[2]);
	struct event *e = next_event();
	CHECK(e->entry.op_context == &mark[2] && !e->err && e->entry.tag == 3);
	abi_verify(buffer, 500, 1);
	start(by_tag[1], 100, &mark[0]);
	e = next_event();
	CHECK(e->entry.op_context == &mark[0]);
	EQUAL(e->err, FI_ETRUNC);
	EQUAL(e->olen, 400);
	abi_verify(buffer, 100, 1);
	EQUAL(freed, 2);
	/* An error, and nothing, where nobody wants a completion. */
	struct receive *quiet = post(1, 9, 500, &mark[1]);
	quiet->entry.flags &= ~FI_COMPLETION;
	send_to_a(1, 9, 500, 0);
	double end = abi_now() + PATIENCE;
	while (freed < 3 && abi_now() < end)
		drive();
	EQUAL(freed, 3);
	no_event();
	/* One that waits when all is closed is nobody's. */
	send_to_a(1, 4, 500, 0);
	await_waiting(1);
	close_both();
}

/* The sender of two messages, one short and one that has to be read. It lives until it is killed. */
static pid_t sender(int fd[2])
{
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	if (child)
		return child;
	struct want want = {.caps = FI_MSG | FI_TAGGED};
	struct sockaddr_in name;
	struct fi_cq_tagged_entry entry;
	abi_open(&b, &want);
	EQUAL(read(fd[1], &name, sizeof(name)), sizeof(name));
	EQUAL(write(fd[1], &b.name, sizeof(b.name)), sizeof(b.name));
	to_a = abi_insert(&b, &name);
	abi_fill(text, BIG, 1);
	send_to_a(1, 3, 500, 0);
	send_to_a(0, 0, BIG, 0);
	for (;;)
		(void)fi_cq_read(b.cq, &entry, 1);
}

/* A message waits whose sender dies, and with it the bytes: its receive ends once, with an error, and what was here whole
 * is good. */
static void senders_may_go(void)
{
	int mark[2], fd[2], status;
	struct sockaddr_in name;
	pid_t child = sender(fd);
	memset(&b, 0, sizeof(b));
	open_a(1);
	EQUAL(write(fd[0], &a.name, sizeof(a.name)), sizeof(a.name));
	EQUAL(read(fd[0], &name, sizeof(name)), sizeof(name));
	to_b = insert_as(&a, &name, B_ID);
	await_waiting(2);
	struct receive *whole = NULL, *half = NULL;
	for (int i = 0; i < MOST; i++)
		if (receives[i].waits)
			*(receives[i].tagged ? &whole : &half) = &receives[i];
	CHECK(whole && half && half->entry.msg_size == BIG);
	EQUAL(kill(child, SIGKILL), 0);
	EQUAL(waitpid(child, &status, 0), child);
	start(half, BIG, &mark[1]);
	struct event *e = next_event();
	CHECK(e->entry.op_context == &mark[1]);
	CHECK(e->err > 0);
	start(whole, 500, &mark[0]);
	check_received(next_event(), &mark[0], 1, 500, 0);
	EQUAL(freed, 2);
	no_event();
	close_a();
	close(fd[0]);
	close(fd[1]);
}

/* A sender whom the owner did not know gets its name when it is inserted. */
static void names_come_later(void)
{
	int mark;
	open_both(1, 0);
	abi_fill(text, BIG, 1);
	send_to_a(1, 3, 500, 0);
	struct receive *r = await_waiting(1);
	EQUAL(r->entry.addr, FI_ADDR_UNSPEC);
	EQUAL(insert_as(&a, &b.name, B_ID), 0);
	drive();
	EQUAL(renewed, 1);
	EQUAL(r->entry.addr, B_ID);
	start(r, 500, &mark);
	check_received(next_event(), &mark, 1, 500, 0);
	/* A second time under another name. */
	EQUAL(insert_as(&a, &b.name, B_ID + 1), 0);
	send_to_a(1, 3, 500, 0);
	EQUAL(await_waiting(1)->entry.addr, B_ID + 1);
	close_both();
}

/* FI_AV_USER_ID (fi_av(3)): completions call a peer as the application did, calls go to its address. */
static void peers_are_called_as_was_said(void)
{
	struct want want = {.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE};
	struct fi_cq_tagged_entry entry;
	struct node m, n;
	char in[8], out[8] = "called";
	fi_addr_t source = 0;
	abi_open(&m, &want);
	abi_open(&n, &want);
	fi_addr_t to_n = abi_insert(&m, &n.name), other = abi_insert(&n, &n.name), to_m = insert_as(&n, &m.name, B_ID);
	EQUAL(other, 0);
	EQUAL(to_m, 1);
	EQUAL(fi_av_insert(n.av, &m.name, 1, NULL, FI_AV_USER_ID, NULL), -FI_EINVAL);
	for (int round = 0; round < 2; round++) {
		/* From that address, and from whomever. */
		EQUAL(fi_recv(n.ep, in, sizeof(in), NULL, round ? FI_ADDR_UNSPEC : to_m, NULL), 0);
		RETRY(&m, fi_send(m.ep, out, sizeof(out), NULL, to_n, NULL));
		double end = abi_now() + PATIENCE;
		while (fi_cq_readfrom(n.cq, &entry, 1, &source) != 1 && abi_now() < end)
			(void)fi_cq_read(m.cq, &entry, 1);
		EQUAL(source, B_ID + round);
		EQUAL(insert_as(&n, &m.name, B_ID + 1), to_m);
	}
	EQUAL(fi_recv(m.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&n, fi_send(n.ep, out, sizeof(out), NULL, to_m, NULL));
	double end = abi_now() + PATIENCE;
	while (!(fi_cq_read(m.cq, &entry, 1) == 1 && entry.flags & FI_RECV)) {
		(void)fi_cq_read(n.cq, &entry, 1);
		CHECK(abi_now() < end);
	}
	abi_close(&m);
	abi_close(&n);
}

/* fi_av_set_user_id is missing in the oldest headers. It is the last of the calls that libfabric 1.20 knows. */
static int set_user_id(struct fid_av *av, fi_addr_t addr, fi_addr_t id, uint64_t flags)
{
	typedef int (*call)(struct fid_av *, fi_addr_t, fi_addr_t, uint64_t);
	CHECK(av->ops->size >= 80 + sizeof(call));
	return (*(call *)((char *)av->ops + 80))(av, addr, id, flags);
}

/* With a vector that was opened with FI_AV_USER_ID, completions carry FI_ADDR_NOTAVAIL until the application has
 * set an id. */
static void ids_are_set_later(void)
{
	struct want want = {.caps = FI_MSG | FI_SOURCE | FI_AV_USER_ID};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .flags = FI_AV_USER_ID};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	const fi_addr_t ids[] = {FI_ADDR_NOTAVAIL, B_ID, B_ID + 1};
	struct fi_cq_tagged_entry entry;
	struct node m, n;
	char in[8], out[8] = "called";
	fi_addr_t same = B_ID;
	abi_open(&m, &want);
	memset(&n, 0, sizeof(n));
	n.info = abi_info(&want);
	EQUAL(fi_fabric(n.info->fabric_attr, &n.fabric, NULL), 0);
	EQUAL(fi_domain(n.fabric, n.info, &n.domain, NULL), 0);
	EQUAL(fi_av_open(n.domain, &av_attr, &n.av, NULL), 0);
	EQUAL(fi_cq_open(n.domain, &cq_attr, &n.cq, NULL), 0);
	EQUAL(fi_endpoint(n.domain, n.info, &n.ep, NULL), 0);
	EQUAL(fi_ep_bind(n.ep, &n.av->fid, 0), 0);
	EQUAL(fi_ep_bind(n.ep, &n.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_enable(n.ep), 0);
	size_t len = sizeof(n.name);
	EQUAL(fi_getname(&n.ep->fid, &n.name, &len), 0);
	fi_addr_t to_n = abi_insert(&m, &n.name), to_m = abi_insert(&n, &m.name);
	/* The flag is refused at an insertion, and an id is refused in another vector and for an address that was
	 * not inserted. */
	EQUAL(fi_av_insert(n.av, &m.name, 1, &same, FI_AV_USER_ID, NULL), -FI_EINVAL);
	EQUAL(set_user_id(m.av, to_n, B_ID, 0), -FI_EINVAL);
	EQUAL(set_user_id(n.av, to_m + 1, B_ID, 0), -FI_EINVAL);
	EQUAL(set_user_id(n.av, to_m, B_ID, 1), -FI_EBADFLAGS);
	for (int round = 0; round < 3; round++) {
		fi_addr_t source = 0;
		double end = abi_now() + PATIENCE;
		if (round)
			EQUAL(set_user_id(n.av, to_m, ids[round], 0), 0);
		EQUAL(fi_recv(n.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		RETRY(&m, fi_send(m.ep, out, sizeof(out), NULL, to_n, NULL));
		while (fi_cq_readfrom(n.cq, &entry, 1, &source) != 1) {
			(void)fi_cq_read(m.cq, &entry, 1);
			CHECK(abi_now() < end);
		}
		EQUAL(source, ids[round]);
		/* An address that is inserted again keeps its id. */
		EQUAL(abi_insert(&n, &m.name), to_m);
	}
	abi_close(&m);
	abi_close(&n);
}

int main(void)
{
	/* So that the longest message is a rendezvous. */
	setenv("FI_SQUALL_EAGER_SIZE", "16384", 1);
	RUN(what_is_refused);
	RUN(peers_are_called_as_was_said);
	RUN(ids_are_set_later);
	if (known()) {
		RUN(completions_are_the_owners);
		RUN(receives_are_the_owners);
		RUN(what_waits_is_the_owners_to_use);
		RUN(senders_may_go);
		RUN(names_come_later);
	}
	printf("%d checks\n", abi_checks);
	return 0;
}
