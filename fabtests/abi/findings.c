/* Defects that were found once, each with what showed it. */
#include "guard.h"
#include "own_process.h"

#include <rdma/fi_trigger.h>
#include <sys/stat.h>

static void describe(uint32_t owner)
{
	fprintf(stderr, "round %u\n", owner);
}

/* `n`, or less where everything is slow. */
static unsigned rounds(unsigned n)
{
	return getenv("ABI_SLOW") ? n / 10 + 10 : n;
}

/* An injected write of two ranges sent what the buffer held later, and completed twice. */
static void injected_write_of_two_ranges(void)
{
	unsigned char target[400], out[200];
	struct fid_mr *mr;
	struct fi_cq_tagged_entry e;
	open_pair(&plain);
	meet();
	EQUAL(fi_mr_reg(b.domain, target, sizeof(target), FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
	memset(target, 0, sizeof(target));
	abi_fill(out, sizeof(out), 1);
	struct iovec iov = {out, 200};
	struct fi_rma_iov ranges[2] = {{0, 120, 5}, {300, 80, 5}};
	struct fi_msg_rma msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .rma_iov = ranges, .rma_iov_count = 2,
				 .context = &contexts[1]};
	EQUAL(fi_writemsg(a.ep, &msg, FI_INJECT | FI_COMPLETION | FI_MORE), 0);
	memset(out, 0x5a, sizeof(out));
	abi_expect(&a, &b, &e);
	CHECK(e.op_context == &contexts[1]);
	turns(200);
	EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	abi_fill(out, sizeof(out), 1);
	CHECK(memcmp(target, out, 120) == 0);
	CHECK(memcmp(target + 300, out + 120, 80) == 0);
	for (int i = 120; i < 300; i++)
		CHECK(target[i] == 0);
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&a);
	abi_close(&b);
}

/* Injected, with a level that speaks of the peer, to nobody: success at once, then an error without context. */
static void injected_with_a_level_to_nobody(void)
{
	const uint64_t levels[] = {FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE};
	for (int met = 0; met < 2; met++) {
		int seen = 0;
		open_pair(&plain);
		if (met)
			meet();
		abi_close(&b);
		struct iovec iov = {buf, 16};
		for (int i = 0; i < 3; i++) {
			struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .context = &contexts[i]};
			RETRY(&a, fi_tsendmsg(a.ep, &msg, FI_INJECT | FI_COMPLETION | levels[i]));
		}
		for (int i = 0; i < 3; i++) {
			struct fi_cq_err_entry err;
			abi_expect_error(&a, NULL, &err);
			CHECK(err.op_context >= (void *)&contexts[0] && err.op_context <= (void *)&contexts[2]);
			int bit = 1 << ((int *)err.op_context - contexts);
			CHECK(!(seen & bit));
			seen |= bit;
		}
		struct fi_cq_tagged_entry e;
		double end = abi_now() + 0.3;
		while (abi_now() < end)
			EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
		abi_close(&a);
	}
}

/* Flags that nothing obeys were accepted. */
static void commit_is_refused(void)
{
	const uint64_t flags[] = {FI_COMMIT_COMPLETE, FI_COMMIT_COMPLETE | FI_FENCE};
	open_pair(&plain);
	struct iovec iov = {buf, 16};
	struct fi_rma_iov range = {0, 16, 5};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b};
	struct fi_msg_tagged tmsg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b};
	struct fi_msg_rma rmsg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .rma_iov = &range, .rma_iov_count = 1};
	for (int i = 0; i < 2; i++) {
		EQUAL(fi_sendmsg(a.ep, &msg, flags[i]), -FI_EOPNOTSUPP);
		EQUAL(fi_tsendmsg(a.ep, &tmsg, flags[i]), -FI_EOPNOTSUPP);
		EQUAL(fi_writemsg(a.ep, &rmsg, flags[i]), -FI_EOPNOTSUPP);
		EQUAL(fi_readmsg(a.ep, &rmsg, flags[i]), -FI_EOPNOTSUPP);
	}
	abi_close(&a);
	abi_close(&b);
}

/* Another process has the endpoint; it dies when told to, or at the end of this one. */
static pid_t lend_peer(int fd[2], struct sockaddr_in *name)
{
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	if (child == 0) {
		struct fi_cq_tagged_entry e;
		char go;
		close(fd[0]);
		abi_open(&b, &plain);
		EQUAL(fi_recv(b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
		EQUAL(write(fd[1], &b.name, sizeof(b.name)), sizeof(b.name));
		fcntl(fd[1], F_SETFL, O_NONBLOCK);
		ssize_t n;
		while ((n = read(fd[1], &go, 1)) < 0)
			(void)fi_cq_read(b.cq, &e, 1);
		/* From now on it makes no progress. */
		fcntl(fd[1], F_SETFL, 0);
		if (n == 1 && write(fd[1], "x", 1) == 1)
			while (read(fd[1], &go, 1) > 0)
				;
		_exit(0);
	}
	close(fd[1]);
	EQUAL(read(fd[0], name, sizeof(*name)), sizeof(*name));
	return child;
}

/* Injected sends whose peer had ended, or whose address another process had, were lost without an error, although
 * fi_cq(3) requires an entry for every failed operation (without context where the call had none). An application that
 * waited for an answer waited for ever. Sends that were complete when copied have had their completion, so their loss
 * is only logged. */
static void lost_injected_sends(int restarted)
{
	struct sockaddr_in name;
	int fd[2], status;
	char go, log_file[600], text[8192] = "";
	pid_t child = lend_peer(fd, &name);
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *cntr;
	struct fi_cq_tagged_entry e;
	snprintf(log_file, sizeof(log_file), "%s.log", stats);
	int log = open(log_file, O_RDWR | O_CREAT | O_TRUNC, 0600), screen = dup(2);
	CHECK(log >= 0 && screen >= 0);
	abi_open(&a, &plain);
	EQUAL(fi_cntr_open(a.domain, &attr, &cntr, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &cntr->fid, FI_SEND), 0);
	to_b = abi_insert(&a, &name);
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b};
	EQUAL(fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	abi_expect(&a, NULL, &e);
	EQUAL(write(fd[0], "x", 1), 1);
	EQUAL(read(fd[0], &go, 1), 1);
	for (int i = 0; i < 3; i++) {
		RETRY(&a, fi_tinject(a.ep, buf, 8, to_b, 1));
		RETRY(&a, fi_tsend(a.ep, buf, 8, NULL, to_b, 1, &contexts[i]));
	}
	for (int i = 0; i < 3; i++) {
		abi_expect(&a, NULL, &e);
		CHECK(e.op_context == &contexts[i]);
	}
	EQUAL(kill(child, SIGKILL), 0);
	EQUAL(waitpid(child, &status, 0), child);
	dup2(log, 2);
	if (restarted) {
		/* Another one in its place. */
		char port[8];
		snprintf(port, sizeof(port), "%u", ntohs(name.sin_port));
		struct fi_info *info = abi_info(&plain);
		((struct sockaddr_in *)info->src_addr)->sin_port = name.sin_port;
		struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
		struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
		b.info = info;
		EQUAL(fi_fabric(info->fabric_attr, &b.fabric, NULL), 0);
		EQUAL(fi_domain(b.fabric, info, &b.domain, NULL), 0);
		EQUAL(fi_av_open(b.domain, &av_attr, &b.av, NULL), 0);
		EQUAL(fi_cq_open(b.domain, &cq_attr, &b.cq, NULL), 0);
		EQUAL(fi_endpoint(b.domain, info, &b.ep, NULL), 0);
		EQUAL(fi_ep_bind(b.ep, &b.av->fid, 0), 0);
		EQUAL(fi_ep_bind(b.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
		EQUAL(fi_enable(b.ep), 0);
	}
	double end = abi_now() + PATIENCE, quiet = 0;
	int errors = 0;
	while (quiet == 0 || abi_now() < quiet) {
		ssize_t rc = fi_cq_read(a.cq, &e, 1);
		if (restarted)
			(void)fi_cq_read(b.cq, NULL, 0);
		if (rc == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};
			rc = fi_cq_readerr(a.cq, &err, 0) == 1 && !err.op_context && err.flags == (FI_SEND | FI_TAGGED) ? -FI_EAGAIN : 0;
			errors++;
		}
		if (quiet == 0 && errors == 3)
			quiet = abi_now() + 0.5;
		if (rc != -FI_EAGAIN || abi_now() > end) {
			dup2(screen, 2);
			FAIL("read %zd; %lu errors counted", rc, (unsigned long)fi_cntr_readerr(cntr));
		}
	}
	dup2(screen, 2);
	/* What failed is counted as such, what was complete as complete. */
	EQUAL(fi_cntr_read(cntr), 4);
	EQUAL(fi_cntr_readerr(cntr), 3);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(statistic("lost_after_completion"), 3);
	EQUAL(statistic("op_errors"), 3);
	CHECK(pread(log, text, sizeof(text) - 1, 0) > 0);
	if (!strstr(text, "were lost afterwards") || strstr(text, "no completion queue for it is bound"))
		FAIL("the log says only: %s", text);
	close(log);
	unlink(log_file);
	close(fd[0]);
}

static void injected_to_a_peer_that_died(void)
{
	lost_injected_sends(0);
}

static void injected_to_a_peer_that_was_replaced(void)
{
	lost_injected_sends(1);
}

/* An injected send to a peer that has closed its endpoint in good order is lost without an error: no one waits for
 * it, and Open MPI, which sends such messages after MPI_Comm_disconnect, ends the job for an error. With `answers` the
 * peer has sent messages, too; otherwise only this side has. */
static void injected_after_a_close(int talks, int answers)
{
	const char *says[] = {"no completion queue for it is bound"};
	struct sockaddr_in names[2];
	int fd[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	struct node *me = child ? &a : &b;
	int sock = fd[child ? 0 : 1];
	char go;
	close(fd[child ? 1 : 0]);
	abi_open(me, &plain);
	EQUAL(write(sock, &me->name, sizeof(me->name)), sizeof(me->name));
	EQUAL(read(sock, &names[0], sizeof(names[0])), sizeof(names[0]));
	fi_addr_t peer = abi_insert(me, &names[0]);
	/* Each side sends a message and receives the other's. */
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = peer};
	struct fi_cq_tagged_entry e;
	int sends = child ? talks : answers, gets = child ? answers : talks, ended = 0;
	if (gets)
		EQUAL(fi_recv(me->ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	if (sends)
		EQUAL(fi_sendmsg(me->ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	double end = abi_now() + PATIENCE;
	while (ended < sends + gets) {
		ssize_t rc = fi_cq_read(me->cq, &e, 1);
		ended += rc == 1;
		CHECK((rc == 1 || rc == -FI_EAGAIN) && abi_now() < end);
	}
	if (child == 0) {
		abi_close(&b);
		EQUAL(write(sock, "x", 1), 1);
		(void)read(sock, &go, 1);
		_exit(0);
	}
	while (recv(sock, &go, 1, MSG_DONTWAIT) < 0) {
		EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
		CHECK(abi_now() < end);
	}
	log_begin();
	for (int i = 0; i < 3; i++)
		RETRY(&a, fi_tinject(a.ep, buf, 8, peer, 1));
	/* An operation with a context ends with an error in any case. */
	RETRY(&a, fi_send(a.ep, buf, sizeof(buf), NULL, peer, &contexts[1]));
	struct fi_cq_err_entry err;
	abi_expect_error(&a, NULL, &err);
	CHECK(err.op_context == &contexts[1]);
	double quiet = abi_now() + 1.5;
	while (abi_now() < quiet)
		EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	log_says(says, 1);
	close(sock);
	EQUAL(waitpid(child, NULL, 0), child);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(statistic("op_errors"), 4);
}

static void injected_after_a_receiver_closed(void)
{
	injected_after_a_close(1, 0);
}

static void injected_after_a_sender_closed(void)
{
	injected_after_a_close(0, 1);
}

static void injected_after_a_close_over_packets(void)
{
	injected_after_a_close(1, 1);
}

static void injected_after_a_close_on_one_host(void)
{
	injected_after_a_close(1, 1);
}

/* A region was read for an answer's retransmission, or written by a late packet, after fi_close(mr). The target is
 * closed when the initiator has all (`whole`), or while the operation is under way. */
static void closed_region(int is_read, enum fi_progress progress)
{
	enum { LEN = 50000 };
	struct want want = plain;
	want.progress = progress;
	want.threading = FI_THREAD_SAFE;
	guard_start(describe);
	open_pair(&want);
	unsigned errors = 0;
	for (unsigned round = 1; round <= rounds(60); round++) {
		struct fid_mr *mr;
		struct fi_cq_tagged_entry e;
		struct guard target = guard_take(LEN, round), mine = guard_take(LEN, round);
		int whole = round % 2;
		ssize_t rc = -FI_EAGAIN;
		abi_fill(target.at, LEN, round);
		abi_fill(mine.at, LEN, round + 1);
		EQUAL(fi_mr_reg(b.domain, target.at, LEN, is_read ? FI_REMOTE_READ : FI_REMOTE_WRITE, 0, round, 0, &mr, NULL), 0);
		if (is_read)
			RETRY(&a, fi_read(a.ep, mine.at, LEN, NULL, to_b, 0, round, &contexts[1]));
		else
			RETRY(&a, fi_write(a.ep, mine.at, LEN, NULL, to_b, 0, round, &contexts[1]));
		double end = abi_now() + PATIENCE;
		for (unsigned n = 0; whole ? rc == -FI_EAGAIN : n < round; n++) {
			rc = fi_cq_read(a.cq, &e, 1);
			if (progress == FI_PROGRESS_MANUAL)
				(void)fi_cq_read(b.cq, NULL, 0);
			if (rc != -FI_EAGAIN)
				break;
			CHECK(abi_now() < end);
		}
		EQUAL(fi_close(&mr->fid), 0);
		if (!is_read && rc == 1)
			abi_verify(target.at, LEN, round + 1);
		guard_give_back(&target);
		if (rc == -FI_EAGAIN)
			rc = abi_next(&a, &b, &e);
		if (rc == -FI_EAVAIL) {
			struct fi_cq_err_entry err = {0};
			EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
			CHECK(!whole && err.op_context == &contexts[1]);
			EQUAL(err.err, FI_EKEYREJECTED);
			errors++;
		} else {
			EQUAL(rc, 1);
			CHECK(e.op_context == &contexts[1]);
			if (is_read)
				abi_verify(mine.at, LEN, round);
		}
		guard_give_back(&mine);
		/* Time for what was lost to be sent again. */
		end = abi_now() + 0.012;
		while (abi_now() < end)
			turns(1);
	}
	/* Some were cut off, and after all that both still talk. */
	CHECK(errors > 0);
	meet();
	abi_close(&a);
	abi_close(&b);
	EQUAL(statistic("tx_failed"), 0);
}

static void region_closed_under_a_read(void)
{
	closed_region(1, FI_PROGRESS_MANUAL);
}

static void region_closed_under_a_read_auto(void)
{
	closed_region(1, FI_PROGRESS_AUTO);
}

static void region_closed_under_a_write(void)
{
	closed_region(0, FI_PROGRESS_MANUAL);
}

static void region_closed_under_a_write_auto(void)
{
	closed_region(0, FI_PROGRESS_AUTO);
}

/* The progress thread looked up a region, and wrote to it while fi_close(mr) returned in another thread. */
static void region_closed_in_a_stream_of_writes(void)
{
	enum { LEN = 60000, WRITES = 8 };
	struct want want = plain;
	want.progress = FI_PROGRESS_AUTO;
	want.threading = FI_THREAD_SAFE;
	guard_start(describe);
	open_pair(&want);
	meet();
	unsigned errors = 0;
	for (unsigned round = 1; round <= rounds(700); round++) {
		struct fid_mr *mr;
		struct fi_cq_tagged_entry e;
		struct guard target = guard_take(LEN, round);
		EQUAL(fi_mr_reg(b.domain, target.at, LEN, FI_REMOTE_WRITE, 0, round, 0, &mr, NULL), 0);
		for (int i = 0; i < WRITES; i++)
			RETRY(&a, fi_write(a.ep, buf, LEN, NULL, to_b, 0, round, &contexts[i]));
		double end = abi_now() + 1e-6 * (round * 7919 % 150);
		while (abi_now() < end)
			;
		EQUAL(fi_close(&mr->fid), 0);
		guard_give_back(&target);
		for (int i = 0; i < WRITES; i++)
			if (abi_next(&a, NULL, &e) == -FI_EAVAIL) {
				struct fi_cq_err_entry err = {0};
				EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
				EQUAL(err.err, FI_EKEYREJECTED);
				errors++;
			}
	}
	CHECK(errors > 0);
	abi_close(&a);
	abi_close(&b);
}

enum { WINDOW = 32 };
static int messages;
static struct fid_cq *tx, *rx;
static fi_addr_t self;
static int thread_failed;

/* One thread sends, and reads the queue of what was sent. */
static void *sender(void *unused)
{
	struct fi_cq_tagged_entry e;
	int ended = 0;
	double end = abi_now() + PATIENCE;
	for (int sent = 0; ended < messages;) {
		ssize_t rc = sent < messages && sent - ended < WINDOW ? fi_send(a.ep, buf, 64, NULL, self, NULL) : -FI_EAGAIN;
		sent += rc == 0;
		ssize_t got = fi_cq_read(tx, &e, 1);
		ended += got == 1;
		if ((rc && rc != -FI_EAGAIN) || (got != 1 && got != -FI_EAGAIN) || abi_now() > end) {
			fprintf(stderr, "sender: %zd, %zd after %d\n", rc, got, ended);
			thread_failed = 1;
			break;
		}
	}
	return unused;
}

/* FI_THREAD_COMPLETION allows a thread for each queue, also when both are of one endpoint: it was -FI_EOTHER. */
static void a_thread_for_each_queue(void)
{
	struct want want = plain;
	want.threading = FI_THREAD_COMPLETION;
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	static unsigned char in[WINDOW][64];
	pthread_t thread;
	messages = (int)rounds(20000);
	a.info = abi_info(&want);
	EQUAL(a.info->domain_attr->threading, FI_THREAD_COMPLETION);
	EQUAL(fi_fabric(a.info->fabric_attr, &a.fabric, NULL), 0);
	EQUAL(fi_domain(a.fabric, a.info, &a.domain, NULL), 0);
	EQUAL(fi_av_open(a.domain, &av_attr, &a.av, NULL), 0);
	EQUAL(fi_cq_open(a.domain, &cq_attr, &tx, NULL), 0);
	EQUAL(fi_cq_open(a.domain, &cq_attr, &rx, NULL), 0);
	EQUAL(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(a.ep, &tx->fid, FI_TRANSMIT), 0);
	EQUAL(fi_ep_bind(a.ep, &rx->fid, FI_RECV), 0);
	EQUAL(fi_enable(a.ep), 0);
	size_t len = sizeof(a.name);
	EQUAL(fi_getname(&a.ep->fid, &a.name, &len), 0);
	self = abi_insert(&a, &a.name);
	EQUAL(pthread_create(&thread, NULL, sender, NULL), 0);
	/* The other one receives. */
	double end = abi_now() + PATIENCE;
	for (int posted = 0, got = 0; got < messages;) {
		struct fi_cq_tagged_entry e;
		if (posted < messages && posted - got < WINDOW) {
			EQUAL(fi_recv(a.ep, in[posted % WINDOW], 64, NULL, FI_ADDR_UNSPEC, NULL), 0);
			posted++;
		}
		ssize_t rc = fi_cq_read(rx, &e, 1);
		if (rc == 1)
			got++;
		else
			EQUAL(rc, -FI_EAGAIN);
		CHECK(!thread_failed && abi_now() < end);
	}
	EQUAL(pthread_join(thread, NULL), 0);
	CHECK(!thread_failed);
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&tx->fid), 0);
	EQUAL(fi_close(&rx->fid), 0);
	EQUAL(fi_close(&a.av->fid), 0);
	EQUAL(fi_close(&a.domain->fid), 0);
	EQUAL(fi_close(&a.fabric->fid), 0);
	fi_freeinfo(a.info);
}

/* A look that finds nothing counted as an operation that failed. */
static void empty_peeks_are_no_errors(void)
{
	open_pair(&plain);
	struct fi_msg_tagged msg = {.addr = FI_ADDR_UNSPEC, .context = contexts};
	for (int i = 0; i < 100; i++) {
		struct fi_cq_err_entry err;
		EQUAL(fi_trecvmsg(a.ep, &msg, FI_PEEK | FI_COMPLETION), 0);
		abi_expect_error(&a, &b, &err);
		EQUAL(err.err, FI_ENOMSG);
	}
	abi_close(&a);
	abi_close(&b);
	EQUAL(statistic("op_errors"), 0);
}

/* Who asked for unreliable datagrams was told that nothing fits, and why only at the level of information. */
static void datagrams_are_refused_with_the_reason(void)
{
	const char *says[] = {"FI_EP_DGRAM is not offered", "proved its address", "ask for FI_EP_RDM"};
	struct fi_info *hints = fi_allocinfo(), *found = NULL;
	hints->ep_attr->type = FI_EP_DGRAM;
	hints->fabric_attr->prov_name = strdup("squall");
	log_begin();
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found), -FI_ENODATA);
	log_says(says, 3);
	fi_freeinfo(hints);
}

/* Who asked for address vectors that processes share was told that nothing fits, and who named one that they are not there:
 * both without a reason, and at the level of information. */
static void shared_vectors_are_refused_with_the_reason(void)
{
	const char *asked[] = {"FI_SHARED_AV is not offered", "each process's own", "open one in each process"};
	const char *named[] = {"fi_av_attr.name", "each process's own", "open one in each process"};
	struct fi_info *hints = fi_allocinfo(), *found = NULL;
	hints->caps = FI_MSG | FI_SHARED_AV;
	hints->fabric_attr->prov_name = strdup("squall");
	log_begin();
	EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found), -FI_ENODATA);
	log_says(asked, 3);
	fi_freeinfo(hints);
	abi_open(&a, &plain);
	/* Made, and opened for reading as MPICH does it with MPIR_CVAR_CH4_OFI_ENABLE_SHARED_AV. */
	for (uint64_t flags = 0; flags <= FI_READ; flags += FI_READ) {
		struct fi_av_attr attr = {.type = FI_AV_TABLE, .name = "FI_NAMED_AV_0", .flags = flags};
		struct fid_av *av = NULL;
		log_begin();
		EQUAL(fi_av_open(a.domain, &attr, &av, NULL), -FI_ENOSYS);
		log_says(named, 3);
		CHECK(av == NULL && attr.map_addr == NULL);
	}
	abi_close(&a);
}

/* With FI_MR_VIRT_ADDR the address one past a piece of a region was taken for the first byte of the next piece in
 * the list, wherever in memory that is, and a range that left its piece went on there. */
static void pieces_by_virtual_address(void)
{
	enum { PAGE = 4096 };
	static unsigned char mem[5][PAGE] __attribute__((aligned(PAGE)));
	struct want want = plain;
	want.mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	open_pair(&want);
	meet();
	/* In the list the piece that begins where the first one ends comes last. Pages 3 and 4 are in no piece. */
	struct iovec iov[3] = {{mem[0], PAGE}, {mem[2], PAGE}, {mem[1], PAGE}};
	/* Page, offset and length of an access, and whether it is inside the region. */
	const struct {
		int page, at, len, inside;
	} tries[] = {{1, 0, 16, 1},     {0, PAGE - 8, 16, 1},  {0, 0, 3 * PAGE, 1},     {2, 0, PAGE, 1}, {1, PAGE - 1, 1, 1},
		     {3, 0, 1, 0},      {2, PAGE - 8, 16, 0},  {0, 0, 3 * PAGE + 1, 0}, {4, 0, 8, 0},    {2, PAGE - 1, 2, 0}};
	struct fid_mr *mr;
	EQUAL(fi_mr_regv(b.domain, iov, 3, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0, 0, &mr, NULL), 0);
	uint64_t key = fi_mr_key(mr);
	static unsigned char out[4 * PAGE], in[4 * PAGE];
	for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++)
		for (int is_read = 0; is_read < 2; is_read++) {
			unsigned char *all = mem[0], *at = mem[tries[i].page] + tries[i].at;
			size_t len = (size_t)tries[i].len, before = (size_t)(at - all);
			struct fi_cq_tagged_entry e;
			abi_fill(all, sizeof(mem), 7);
			abi_fill(out, len, (unsigned)i);
			memset(in, 0, sizeof(in));
			if (is_read)
				RETRY(&a, fi_read(a.ep, in, len, NULL, to_b, (uint64_t)(uintptr_t)at, key, NULL));
			else
				RETRY(&a, fi_write(a.ep, out, len, NULL, to_b, (uint64_t)(uintptr_t)at, key, NULL));
			ssize_t rc = abi_next(&a, &b, &e);
			if (rc == -FI_EAVAIL) {
				struct fi_cq_err_entry err = {0};
				EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
			}
			if (rc != (tries[i].inside ? 1 : -FI_EAVAIL))
				FAIL("%s %zu: %zd", is_read ? "read" : "write", i, rc);
			/* All other bytes are unchanged. */
			if (!is_read && tries[i].inside) {
				abi_verify(at, len, (unsigned)i);
				for (size_t k = 0; k < len; k++)
					at[k] = (unsigned char)((before + k) * 31 + ((before + k) >> 8) * 7 + 7 * 131);
			} else if (is_read && tries[i].inside) {
				CHECK(memcmp(in, at, len) == 0);
			}
			abi_verify(all, sizeof(mem), 7);
		}
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&a);
	abi_close(&b);
}

/* The number of a closed region was given to the next region while an access to the closed one waited to be
 * counted. So the new region's counter counted the access, and the closed one's did not. The target computes while
 * background progress answers. */
static void accesses_are_counted_for_their_region(void)
{
	struct want want = plain;
	want.caps |= FI_RMA_EVENT;
	want.mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	want.threading = FI_THREAD_SAFE;
	struct target {
		struct sockaddr_in name;
		uint64_t at, key;
	} target;
	int fd[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	if (child == 0) {
		char go;
		struct fi_cq_tagged_entry e;
		close(fd[0]);
		abi_open(&a, &want);
		EQUAL(read(fd[1], &target, sizeof(target)), sizeof(target));
		to_b = abi_insert(&a, &target.name);
		RETRY(&a, fi_write(a.ep, buf, 64, NULL, to_b, target.at, target.key, NULL));
		abi_expect(&a, NULL, &e);
		EQUAL(write(fd[1], "x", 1), 1);
		while (recv(fd[1], &go, 1, MSG_DONTWAIT) < 0)
			(void)fi_cq_read(a.cq, NULL, 0);
		_exit(0);
	}
	static unsigned char one[64], two[64];
	struct fid_cntr *first, *second;
	struct fid_mr *mr, *next;
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	char done;
	close(fd[1]);
	abi_open(&b, &want);
	EQUAL(fi_cntr_open(b.domain, &attr, &first, NULL), 0);
	EQUAL(fi_cntr_open(b.domain, &attr, &second, NULL), 0);
	memset(one, 1, sizeof(one));
	EQUAL(fi_mr_reg(b.domain, one, sizeof(one), FI_REMOTE_WRITE, 0, 0, FI_RMA_EVENT, &mr, NULL), 0);
	EQUAL(fi_mr_bind(mr, &first->fid, FI_REMOTE_WRITE), 0);
	EQUAL(fi_mr_enable(mr), 0);
	target = (struct target){b.name, (uint64_t)(uintptr_t)one, fi_mr_key(mr)};
	EQUAL(write(fd[0], &target, sizeof(target)), sizeof(target));
	/* The target makes no call of libfabric until the write is complete. */
	EQUAL(read(fd[0], &done, 1), 1);
	EQUAL(one[0], 0);
	EQUAL(fi_close(&mr->fid), 0);
	EQUAL(fi_mr_reg(b.domain, two, sizeof(two), FI_REMOTE_WRITE, 0, 0, FI_RMA_EVENT, &next, NULL), 0);
	EQUAL(fi_mr_bind(next, &second->fid, FI_REMOTE_WRITE), 0);
	EQUAL(fi_mr_enable(next), 0);
	for (int i = 0; i < 100; i++)
		(void)fi_cq_read(b.cq, NULL, 0);
	EQUAL(fi_cntr_read(second), 0);
	EQUAL(fi_cntr_read(first), 1);
	close(fd[0]);
	EQUAL(waitpid(child, NULL, 0), child);
	EQUAL(fi_close(&next->fid), 0);
	EQUAL(fi_close(&b.ep->fid), 0);
	EQUAL(fi_close(&first->fid), 0);
	EQUAL(fi_close(&second->fid), 0);
}

/* fi_cq_readerr and fi_eq_readerr ignored the application's buffer for err_data, into which the text belongs from
 * API 1.5 on. They handed out memory that another thread's call frees, or no memory at all. */
static void error_data_goes_into_the_buffer_given(void)
{
	const uint32_t versions[] = {FI_VERSION(1, 4), FI_VERSION(1, 17)};
	for (int late = 0; late < 2; late++) {
		struct want want = plain;
		want.version = versions[late];
		/* An application of 1.4 gets this unless it asks for more: scalable registration has no bits. */
		open_pair(&want);
		abi_close(&b);
		for (size_t i = 0; i < 4; i++)
			RETRY(&a, fi_send(a.ep, buf, sizeof(buf), NULL, to_b, &contexts[i]));
		char mine[1024], text[1024];
		struct fi_cq_tagged_entry e;
		/* The test uses a buffer that is long enough, one that is too short, and none. */
		const size_t sizes[] = {sizeof(mine), 10, 0};
		struct fi_cq_err_entry last = {0};
		for (int i = 0; i < 3; i++) {
			memset(mine, '#', sizeof(mine));
			EQUAL(abi_next(&a, NULL, &e), -FI_EAVAIL);
			struct fi_cq_err_entry err = {.err_data = mine, .err_data_size = sizes[i]};
			EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
			const char *said = fi_cq_strerror(a.cq, err.prov_errno, err.err_data, text, sizeof(text));
			CHECK(said == text && strlen(text) > 20);
			size_t all = strlen(text) + 1;
			if (late && sizes[i]) {
				size_t kept = all < sizes[i] ? all : sizes[i];
				CHECK(err.err_data == mine);
				EQUAL(err.err_data_size, kept);
				EQUAL(strlen(mine), kept - 1);
				CHECK(memcmp(mine, text, kept - 1) == 0);
				for (size_t k = kept; k < sizeof(mine); k++)
					CHECK(mine[k] == '#');
			} else {
				CHECK(err.err_data != mine && mine[0] == '#');
				EQUAL(err.err_data_size, all);
				CHECK(strcmp(err.err_data, text) == 0);
				/* The text stays valid until the next read: asking for another text does not change
				 * it. */
				CHECK(strcmp(fi_cq_strerror(a.cq, ENOENT, NULL, NULL, 0), text) != 0);
				CHECK(strcmp(err.err_data, text) == 0);
				last = err;
			}
		}
		/* An entry that is passed again as it was left points to the queue's own memory, which is no
		 * buffer. */
		EQUAL(abi_next(&a, NULL, &e), -FI_EAVAIL);
		EQUAL(fi_cq_readerr(a.cq, &last, 0), 1);
		fi_cq_strerror(a.cq, last.prov_errno, last.err_data, text, sizeof(text));
		CHECK(strcmp(last.err_data, text) == 0);
		EQUAL(last.err_data_size, strlen(text) + 1);
		struct fi_eq_attr attr = {.wait_obj = FI_WAIT_NONE};
		struct fi_av_attr events = {.type = FI_AV_TABLE, .flags = FI_EVENT};
		struct sockaddr_in nobody = {.sin_family = AF_INET};
		struct fid_eq *eq;
		struct fid_av *av;
		fi_addr_t addr;
		EQUAL(fi_eq_open(a.fabric, &attr, &eq, NULL), 0);
		EQUAL(fi_av_open(a.domain, &events, &av, NULL), 0);
		EQUAL(fi_av_bind(av, &eq->fid, 0), 0);
		for (int with = 0; with < 2; with++) {
			EQUAL(fi_av_insert(av, &nobody, 1, &addr, 0, NULL), 0);
			struct fi_eq_err_entry err = {.err_data = mine, .err_data_size = with ? sizeof(mine) : 0};
			memset(mine, '#', sizeof(mine));
			EQUAL(fi_eq_readerr(eq, &err, 0), sizeof(err));
			EQUAL(err.err, FI_EINVAL);
			CHECK(err.err_data == (late && with ? mine : NULL) && mine[0] == '#');
			EQUAL(err.err_data_size, 0);
		}
		EQUAL(fi_close(&av->fid), 0);
		EQUAL(fi_close(&eq->fid), 0);
		abi_close(&a);
	}
}

static struct fid_cntr *counter_of(struct node *n)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *cntr;
	EQUAL(fi_cntr_open(n->domain, &attr, &cntr, NULL), 0);
	return cntr;
}

/* Deferred work for an endpoint whose queue was full kept all other work of its domain from beginning, such as the
 * change of a counter. */
static void full_endpoints_hold_up_no_other_work(void)
{
	struct want want = plain;
	want.caps |= FI_TRIGGER;
	want.tx_op_flags = FI_DELIVERY_COMPLETE;
	struct sockaddr_in name;
	struct fi_cq_tagged_entry e;
	int fd[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	pid_t child = fork();
	if (child == 0) {
		char go;
		close(fd[0]);
		abi_open(&b, &want);
		EQUAL(write(fd[1], &b.name, sizeof(b.name)), sizeof(b.name));
		while (recv(fd[1], &go, 1, MSG_DONTWAIT) < 0)
			(void)fi_cq_read(b.cq, NULL, 0);
		_exit(0);
	}
	close(fd[1]);
	EQUAL(read(fd[0], &name, sizeof(name)), sizeof(name));
	abi_open(&a, &want);
	to_b = abi_insert(&a, &name);
	RETRY(&a, fi_tsend(a.ep, buf, 8, NULL, to_b, 1, NULL));
	abi_expect(&a, NULL, &e);
	EQUAL(kill(child, SIGSTOP), 0);
	int sent = 0;
	while (fi_tsend(a.ep, buf, 1000, NULL, to_b, 1, NULL) == 0)
		sent++;
	CHECK(sent > 0);
	struct fid_cntr *first = counter_of(&a), *second = counter_of(&a), *ended = counter_of(&a), *changed = counter_of(&a);
	struct iovec iov = {buf, 1000};
	struct fi_op_tagged send = {.ep = a.ep, .msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .tag = 1}};
	struct fi_op_cntr add = {.cntr = changed, .value = 1};
	struct fi_deferred_work sends[2], change = {.threshold = 1, .triggering_cntr = second, .op_type = FI_OP_CNTR_ADD};
	change.op.cntr = &add;
	for (int i = 0; i < 2; i++) {
		sends[i] = (struct fi_deferred_work){.threshold = 1, .triggering_cntr = first, .completion_cntr = ended};
		sends[i].op_type = FI_OP_TSEND;
		sends[i].op.tagged = &send;
		EQUAL(fi_control(&a.domain->fid, FI_QUEUE_WORK, &sends[i]), 0);
	}
	EQUAL(fi_control(&a.domain->fid, FI_QUEUE_WORK, &change), 0);
	EQUAL(fi_cntr_add(first, 1), 0);
	EQUAL(fi_cntr_add(second, 1), 0);
	EQUAL(fi_cntr_read(changed), 1);
	EQUAL(fi_cntr_read(ended), 0);
	/* When the peer makes progress again there is room, and the rest of the work begins. */
	EQUAL(kill(child, SIGCONT), 0);
	double end = abi_now() + PATIENCE;
	for (int shown = 0; shown < sent || fi_cntr_read(ended) < 2;) {
		ssize_t rc = fi_cq_read(a.cq, &e, 1);
		shown += rc == 1;
		CHECK((rc == 1 || rc == -FI_EAGAIN) && abi_now() < end);
	}
	EQUAL(fi_cntr_readerr(ended), 0);
	close(fd[0]);
	EQUAL(waitpid(child, NULL, 0), child);
	EQUAL(fi_close(&first->fid), 0);
	EQUAL(fi_close(&second->fid), 0);
	EQUAL(fi_close(&ended->fid), 0);
	EQUAL(fi_close(&changed->fid), 0);
	abi_close(&a);
}

/* A thread that slept in a waiting call, or on the descriptor, was not woken when background progress timed out an
 * operation that another thread had begun meanwhile. */
enum asleep_in { IN_SREAD, IN_POLL, IN_COUNTER, IN_SET, IN_WORK, ASLEEP_KINDS };
static struct fid_cntr *failures, *work_ends;
static struct fid_wait *wait_set;
static struct fid_cq *queue_in_set;
static _Atomic int is_asleep, has_woken;

static void *sleep_until_failure(void *arg)
{
	enum { MS = (int)(PATIENCE * 1000) };
	enum asleep_in kind = *(enum asleep_in *)arg;
	struct fi_cq_tagged_entry e;
	struct fid *fids[1] = {&a.cq->fid};
	ssize_t rc = -FI_EAGAIN;
	is_asleep = 1;
	while (rc == -FI_EAGAIN) {
		struct pollfd fd = {.events = POLLIN};
		switch (kind) {
		case IN_SREAD:
			rc = fi_cq_sread(a.cq, &e, 1, NULL, MS);
			break;
		case IN_POLL:
			EQUAL(fi_control(&a.cq->fid, FI_GETWAIT, &fd.fd), 0);
			if (fi_trywait(a.fabric, fids, 1) == 0)
				EQUAL(poll(&fd, 1, MS), 1);
			rc = fi_cq_read(a.cq, &e, 1);
			break;
		case IN_SET:
			EQUAL(fi_wait(wait_set, MS), 0);
			rc = fi_cq_read(queue_in_set, &e, 1);
			break;
		default:
			rc = fi_cntr_wait(kind == IN_WORK ? work_ends : failures, 1, MS);
		}
	}
	EQUAL(rc, -FI_EAVAIL);
	has_woken = 1;
	return NULL;
}

static void sleepers_wake_up_for_timeouts(void)
{
	struct want want = plain;
	want.caps |= FI_TRIGGER;
	want.threading = FI_THREAD_SAFE;
	want.wait = FI_WAIT_FD;
	/* The peer is an address at which nothing ever answers. */
	struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
	socklen_t len = sizeof(nobody);
	int silent = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(silent >= 0 && bind(silent, (struct sockaddr *)&nobody, len) == 0);
	EQUAL(getsockname(silent, (struct sockaddr *)&nobody, &len), 0);
	for (enum asleep_in kind = 0; kind < ASLEEP_KINDS; kind++) {
		pthread_t thread;
		abi_open(&a, &want);
		struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
		struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET};
		struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
		struct fid_ep *ep = a.ep;
		EQUAL(fi_wait_open(a.fabric, &wait_attr, &wait_set), 0);
		cq_attr.wait_set = wait_set;
		EQUAL(fi_cq_open(a.domain, &cq_attr, &queue_in_set, NULL), 0);
		EQUAL(fi_cntr_open(a.domain, &cntr_attr, &failures, NULL), 0);
		EQUAL(fi_cntr_open(a.domain, &cntr_attr, &work_ends, NULL), 0);
		EQUAL(fi_ep_bind(a.ep, &failures->fid, FI_SEND), 0);
		if (kind == IN_SET) {
			/* This test uses an endpoint of its own. */
			EQUAL(fi_endpoint(a.domain, a.info, &ep, NULL), 0);
			EQUAL(fi_ep_bind(ep, &a.av->fid, 0), 0);
			EQUAL(fi_ep_bind(ep, &queue_in_set->fid, FI_TRANSMIT | FI_RECV), 0);
			EQUAL(fi_enable(ep), 0);
		}
		fi_addr_t to = abi_insert(&a, &nobody);
		struct fid_cntr *at_once = counter_of(&a);
		is_asleep = has_woken = 0;
		EQUAL(pthread_create(&thread, NULL, sleep_until_failure, &kind), 0);
		while (!is_asleep)
			usleep(1000);
		usleep(100 * 1000);
		struct iovec iov = {buf, 1000};
		struct fi_op_msg msg = {.ep = ep, .msg = {.msg_iov = &iov, .iov_count = 1, .addr = to}};
		struct fi_deferred_work work = {.triggering_cntr = at_once, .completion_cntr = work_ends, .op_type = FI_OP_SEND};
		work.op.msg = &msg;
		if (kind == IN_WORK)
			EQUAL(fi_control(&a.domain->fid, FI_QUEUE_WORK, &work), 0);
		else
			EQUAL(fi_send(ep, buf, sizeof(buf), NULL, to, NULL), 0);
		double end = abi_now() + 20;
		while (!has_woken) {
			if (abi_now() > end)
				FAIL("kind %d: still asleep 20 s after the send", kind);
			usleep(1000);
		}
		EQUAL(pthread_join(thread, NULL), 0);
		if (kind == IN_SET)
			EQUAL(fi_close(&ep->fid), 0);
		EQUAL(fi_close(&a.ep->fid), 0);
		EQUAL(fi_close(&queue_in_set->fid), 0);
		EQUAL(fi_close(&wait_set->fid), 0);
		EQUAL(fi_close(&failures->fid), 0);
		EQUAL(fi_close(&work_ends->fid), 0);
		EQUAL(fi_close(&at_once->fid), 0);
	}
	close(silent);
}

/* This is the same test without background progress: the sleeper has to learn of the timer that the other thread's
 * operation set. */
static void sleepers_wake_up_by_themselves(void)
{
	sleepers_wake_up_for_timeouts();
}

/* An application that has not read an error yet still makes progress by reading nothing. */
static void unread_errors_do_not_stop_progress(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	struct iovec iov = {buf, 8};
	open_pair(&plain);
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .tag = 6, .context = &contexts[2]};
	meet();
	EQUAL(fi_trecv(b.ep, buf + 200, 8, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[0]), 0);
	EQUAL(fi_cancel(&b.ep->fid, &contexts[0]), 0);
	EQUAL(fi_cq_read(b.cq, &e, 1), -FI_EAVAIL);
	EQUAL(fi_trecv(b.ep, buf + 300, 8, NULL, FI_ADDR_UNSPEC, 6, 0, &contexts[1]), 0);
	EQUAL(fi_tsendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE), 0);
	double end = abi_now() + PATIENCE;
	ssize_t rc;
	while ((rc = fi_cq_read(a.cq, &e, 1)) == -FI_EAGAIN) {
		EQUAL(fi_cq_read(b.cq, NULL, 0), -FI_EAVAIL);
		if (abi_now() > end)
			FAIL("the message was not delivered within %.0f s", PATIENCE);
	}
	CHECK(rc == 1 && e.op_context == &contexts[2]);
	EQUAL(fi_cq_readerr(b.cq, &err, 0), 1);
	CHECK(err.err == FI_ECANCELED && err.op_context == &contexts[0]);
	EQUAL(fi_cq_read(b.cq, &e, 1), 1);
	CHECK(e.op_context == &contexts[1]);
	abi_close(&a);
	abi_close(&b);
}

/* A control group of version 1 or 2 that limits the memory of its processes. NULL if none can be made here. */
static const char *limited_group(const char *limit)
{
	static const char *const files[2][2] = {
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	};
	static char group[200];
	for (int i = 0; i < 2; i++) {
		char file[300];
		snprintf(group, sizeof(group), "%s/squall-test-%d", files[i][0], (int)getpid());
		if (mkdir(group, 0700))
			continue;
		snprintf(file, sizeof(file), "%s/%s", group, files[i][1]);
		int fd = open(file, O_WRONLY);
		ssize_t len = fd < 0 ? -1 : write(fd, limit, strlen(limit));
		close(fd);
		if (len > 0)
			return group;
		rmdir(group);
	}
	return NULL;
}

/* More than the group has memory for. */
#define EARLY 8000
static unsigned char early[16 << 10];

/* Exchanges names by `to` and `from`, and receives only after a byte has come from `from`. */
static void receive_late(const char *group, int to, int from)
{
	struct fi_cq_tagged_entry e;
	char file[300], number[20];
	snprintf(file, sizeof(file), "%s/cgroup.procs", group);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	int fd = open(file, O_WRONLY);
	CHECK(fd >= 0 && write(fd, number, strlen(number)) > 0);
	close(fd);
	abi_open(&b, &plain);
	EQUAL(write(to, &b.name, sizeof(b.name)), sizeof(b.name));
	/* A peer that the receiver does not know has less room. */
	struct sockaddr_in name;
	EQUAL(read(from, &name, sizeof(name)), sizeof(name));
	(void)abi_insert(&b, &name);
	struct pollfd sent = {.fd = from, .events = POLLIN};
	while (poll(&sent, 1, 0) == 0)
		(void)fi_cq_read(b.cq, NULL, 0);
	for (int i = 0; i < EARLY; i++) {
		EQUAL(fi_trecv(b.ep, early, sizeof(early), NULL, FI_ADDR_UNSPEC, 7, 0, &early[i]), 0);
		abi_expect(&b, NULL, &e);
		CHECK(e.op_context == &early[i] && e.len == sizeof(early));
	}
	exit(0);
}

static void unexpected_messages_respect_a_memory_limit(void)
{
	struct fi_cq_tagged_entry e;
	struct sockaddr_in name;
	int status = 0, up[2], down[2], done = 0;
	const char *group = limited_group("64M");
	if (!group) {
		printf("skipped: no control group with a memory limit can be made here\n");
		return;
	}
	EQUAL(pipe(up), 0);
	EQUAL(pipe(down), 0);
	pid_t child = fork();
	if (child == 0)
		receive_late(group, up[1], down[0]);
	EQUAL(read(up[0], &name, sizeof(name)), sizeof(name));
	abi_open(&a, &plain);
	to_b = abi_insert(&a, &name);
	EQUAL(write(down[1], &a.name, sizeof(a.name)), sizeof(a.name));
	for (int i = 0; i < EARLY; i++)
		RETRY(&a, fi_tsend(a.ep, early, sizeof(early), NULL, to_b, 7, NULL));
	/* Until the receiver takes no further message. */
	for (double last = abi_now(); abi_now() < last + 1.0;)
		if (fi_cq_read(a.cq, &e, 1) == 1) {
			last = abi_now();
			done++;
		}
	EQUAL(write(down[1], "s", 1), 1);
	while (waitpid(child, &status, WNOHANG) == 0)
		(void)fi_cq_read(a.cq, &e, 1);
	EQUAL(rmdir(group), 0);
	if (WIFSIGNALED(status))
		FAIL("a receiver with little memory was killed by signal %d after %d messages", WTERMSIG(status), done);
	EQUAL(status, 0);
	CHECK(done < EARLY);
	abi_close(&a);
}

static const struct test tests[] = {
	TEST(injected_write_of_two_ranges, NULL, NULL, 0),
	TEST(injected_with_a_level_to_nobody, NULL, NULL, 0),
	TEST(commit_is_refused, NULL, NULL, 0),
	TEST(injected_to_a_peer_that_died, NULL, NULL, 1),
	TEST(injected_to_a_peer_that_was_replaced, NULL, NULL, 1),
	TEST(injected_after_a_receiver_closed, NULL, NULL, 1, {"FI_SQUALL_SHM=no"}),
	TEST(injected_after_a_sender_closed, NULL, NULL, 1, {"FI_SQUALL_SHM=no"}),
	TEST(injected_after_a_close_over_packets, NULL, NULL, 1, {"FI_SQUALL_SHM=no"}),
	TEST(injected_after_a_close_on_one_host, NULL, NULL, 1, {"FI_SQUALL_SHM=yes"}),
	TEST(region_closed_under_a_read, "loss=20%,seed=3", "yes", 0),
	TEST(region_closed_under_a_read_auto, "loss=20%,seed=4", "yes", 0),
	TEST(region_closed_under_a_write, "loss=20%,dup=20%,reorder=20%,seed=3", "yes", 0),
	TEST(region_closed_under_a_write_auto, "loss=20%,dup=20%,reorder=20%,seed=4", "yes", 0),
	TEST(region_closed_in_a_stream_of_writes, NULL, NULL, 0),
	TEST(a_thread_for_each_queue, NULL, NULL, 0),
	TEST(empty_peeks_are_no_errors, NULL, NULL, 0),
	TEST(datagrams_are_refused_with_the_reason, NULL, NULL, 1),
	TEST(shared_vectors_are_refused_with_the_reason, NULL, NULL, 1),
	TEST(pieces_by_virtual_address, NULL, NULL, 0),
	TEST(full_endpoints_hold_up_no_other_work, NULL, NULL, 0,
	     {"FI_SQUALL_OUTSTANDING=64", "FI_SQUALL_SHM=no", "FI_SQUALL_DEADLINE=30s"}),
	TEST(sleepers_wake_up_for_timeouts, NULL, NULL, 0, {"FI_SQUALL_ATTEND=2ms", "FI_SQUALL_SHM=no"}),
	TEST(sleepers_wake_up_by_themselves, NULL, NULL, 0, {"FI_SQUALL_ATTEND=0ns", "FI_SQUALL_SHM=no"}),
	TEST(error_data_goes_into_the_buffer_given, NULL, NULL, 0),
	TEST(unread_errors_do_not_stop_progress, NULL, NULL, 0, {"FI_SQUALL_ATTEND=0ns", "FI_SQUALL_SHM=no"}),
	TEST(accesses_are_counted_for_their_region, NULL, NULL, 0, {"FI_SQUALL_ATTEND=2ms"}),
	TEST(unexpected_messages_respect_a_memory_limit, NULL, NULL, 0, {"FI_SQUALL_SHM=no", "FI_SQUALL_DEADLINE=30s"}),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
