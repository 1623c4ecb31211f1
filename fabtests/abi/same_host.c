/* Processes of one host that talk through shared memory, and what may stand in the way: each that cannot, or is not to, is
 * talked to by packets, and nothing is lost. Each test has a process of its own, and brings a child: its peer. */
#include "abi.h"
#include "own_process.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LONG 300000

static const struct want automatic = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE,
	.progress = FI_PROGRESS_AUTO,
	.wait = FI_WAIT_FD,
};

static unsigned char out[LONG], in[LONG];
/* The other process, and a pipe to it and from it. */
static pid_t child;
static int side, pipe_fd;
static fi_addr_t peer;

static void say(char word)
{
	EQUAL(write(pipe_fd, &word, 1), 1);
}

static char hear(void)
{
	char word = 0;
	EQUAL(read(pipe_fd, &word, 1), 1);
	return word;
}

/* Hears a word, and serves the peer until then: no background thread does in these tests. */
static char hear_and_serve(void)
{
	struct pollfd word = {.fd = pipe_fd, .events = POLLIN};
	while (poll(&word, 1, 0) == 0)
		(void)fi_cq_read(a.cq, NULL, 0);
	return hear();
}

/* Forks the peer, before anything is open. Whether this is the first process. */
static int begin(const char *deadline)
{
	int fds[2];
	setenv("FI_SQUALL_SHM", "yes", 1);
	setenv("FI_SQUALL_DEADLINE", deadline, 1);
	unsetenv("FI_SQUALL_FAULT");
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	child = fork();
	CHECK(child >= 0);
	side = child == 0;
	pipe_fd = fds[side];
	close(fds[!side]);
	/* Its peer is gone: so is whatever it waits for. */
	if (side)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return !side;
}

/* FI_OPT_SHARED_MEMORY_PERMITTED is missing in older headers. */
enum { shared_memory_permitted = 11 };
/* This process forbids its endpoint to share memory. */
static int forbids;

/* Opens an endpoint and forbids it to share memory, which has to be done before it is enabled. */
static void open_without_shared_memory(const struct want *want)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	size_t len = sizeof(a.name), of_other_size = 0;
	char permitted = 0;
	memset(&a, 0, sizeof(a));
	a.info = abi_info(want);
	EQUAL(fi_fabric(a.info->fabric_attr, &a.fabric, NULL), 0);
	EQUAL(fi_domain(a.fabric, a.info, &a.domain, NULL), 0);
	EQUAL(fi_av_open(a.domain, &av_attr, &a.av, NULL), 0);
	EQUAL(fi_cq_open(a.domain, &cq_attr, &a.cq, NULL), 0);
	EQUAL(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, shared_memory_permitted, &of_other_size, sizeof(of_other_size)), -FI_EINVAL);
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, shared_memory_permitted, &permitted, 1), 0);
	EQUAL(fi_enable(a.ep), 0);
	EQUAL(fi_getname(&a.ep->fid, &a.name, &len), 0);
	EQUAL(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, shared_memory_permitted, &permitted, 1), -FI_EOPBADSTATE);
}

/* The peer's endpoint is known, and its greeting has been heard. */
static void open_here(const struct want *want)
{
	struct sockaddr_in theirs;
	if (forbids)
		open_without_shared_memory(want);
	else
		abi_open(&a, want);
	EQUAL(write(pipe_fd, &a.name, sizeof(a.name)), sizeof(a.name));
	EQUAL(read(pipe_fd, &theirs, sizeof(theirs)), sizeof(theirs));
	peer = abi_insert(&a, &theirs);
}

/* One message each way, of this length; both at once. */
static void exchange(size_t len, unsigned round)
{
	struct fi_cq_tagged_entry e;
	abi_fill(out, len, round * 2 + (unsigned)side);
	EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, peer, round, 0, &contexts[0]), 0);
	RETRY(&a, fi_tsend(a.ep, out, len, NULL, peer, round, &contexts[1]));
	for (int got = 0; got < 2; got++)
		abi_expect(&a, NULL, &e);
	abi_verify(in, len, round * 2 + !side);
}

/* Messages of all protocols, until there has been time for a link. */
static void talk(void)
{
	static const size_t lens[] = {0, 8, 64, 3000, 20000, 70000, LONG};
	for (unsigned round = 0; round < 140; round++) {
		if (round < 20)
			usleep(1000);
		exchange(lens[round % 7], round);
	}
}

static void child_ended(int expected_signal)
{
	int status = 0;
	EQUAL(waitpid(child, &status, 0), child);
	EQUAL(WIFSIGNALED(status) ? WTERMSIG(status) : 0, expected_signal);
	if (!expected_signal)
		EQUAL(WEXITSTATUS(status), 0);
}

/* Both close, the child first; how many channels, and records, there were at both. */
static void finish(void)
{
	if (side) {
		abi_close(&a);
		exit(0);
	}
	abi_close(&a);
	child_ended(0);
}

/* Returns the number of segments that this process has mapped. */
static int mappings(void)
{
	char line[4096];
	int count = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f))
		count += strstr(line, "memfd:squall") != NULL;
	fclose(f);
	return count;
}

#define SOCKETS 64

/* Returns whether a socket with this inode number exists under a squall name, in any process. */
static int is_socket_of_ours(unsigned long wanted)
{
	char line[4096], path[256];
	unsigned long inode;
	int found = 0;
	FILE *f = fopen("/proc/net/unix", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %255s", &inode, path) == 2)
			found |= inode == wanted && strncmp(path, "@squall-", 8) == 0;
	fclose(f);
	return found;
}

/* Counts the Unix sockets of this process under squall names. Other jobs of the machine have such sockets, too. */
static int own_sockets(unsigned long numbers[SOCKETS])
{
	int count = 0;
	struct dirent *entry;
	DIR *fds = opendir("/proc/self/fd");
	CHECK(fds != NULL);
	while ((entry = readdir(fds)) != NULL) {
		char target[256] = "";
		unsigned long number;
		if (readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1) > 0 &&
		    sscanf(target, "socket:[%lu]", &number) == 1 && is_socket_of_ours(number)) {
			CHECK(count < SOCKETS);
			numbers[count++] = number;
		}
	}
	closedir(fds);
	return count;
}

/* A system call fails with this error from here on. */
static void refuse(long call, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program_ = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
	EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program_), 0);
}

/* They find each other, and then no packet carries a message. */
static void neighbours_find_each_other(void)
{
	begin("8s");
	open_here(&plain);
	talk();
	if (!side)
		CHECK(mappings() > 0);
	finish();
	EQUAL(statistic("shm_channels"), 2);
	CHECK(statistic("shm_tx_records") > 200);
	EQUAL(mappings(), 0);
}

/* The end of a message that was to be delivered is told before what the peer sent when it had it, also to who looks late:
 * Intel MPI waits forever for a window's operations where it is not. */
static void an_end_comes_before_what_answers_it(void)
{
	const size_t lens[] = {0, 8, 80, 4000, 30000};
	struct fi_cq_tagged_entry e;
	begin("10s");
	open_here(&plain);
	talk();
	for (unsigned i = 0; i < 5; i++) {
		struct iovec iov = {out, lens[i]};
		struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = peer, .tag = 50, .context = out};
		EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, peer, side ? 50 : 51, 0, in), 0);
		if (side) {
			say('r');
			abi_expect(&a, NULL, &e);
			CHECK(e.op_context == in && e.len == lens[i]);
			RETRY(&a, fi_tinject(a.ep, out, 8, peer, 51));
			for (unsigned n = 0; n < 100; n++)
				EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
			say('d');
			EQUAL(hear(), 'n');
		} else {
			EQUAL(hear(), 'r');
			RETRY(&a, fi_tsendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
			EQUAL(hear(), 'd');
			abi_expect(&a, NULL, &e);
			CHECK(e.op_context == out);
			abi_expect(&a, NULL, &e);
			CHECK(e.op_context == in && e.len == 8);
			say('n');
		}
	}
	finish();
}

/* The same where a thread makes progress, and both sleep in between. */
static void neighbours_that_sleep(void)
{
	struct fi_cq_tagged_entry e;
	begin("8s");
	open_here(&automatic);
	talk();
	for (unsigned round = 0; round < 20; round++) {
		abi_fill(out, 64, round);
		if (round % 2 == (unsigned)side) {
			usleep(20000);
			RETRY(&a, fi_tsend(a.ep, out, 64, NULL, peer, 1000 + round, out));
			EQUAL(fi_cq_sread(a.cq, &e, 1, NULL, 5000), 1);
		} else {
			EQUAL(fi_trecv(a.ep, in, 64, NULL, peer, 1000 + round, 0, in), 0);
			EQUAL(fi_cq_sread(a.cq, &e, 1, NULL, 5000), 1);
			abi_verify(in, 64, round);
		}
	}
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

/* Each end has sent more messages than the other end has room for, behind one that the other end receives first.
 * The reads of that message, and RMA reads, must pass the messages that wait. The messages must arrive, in their
 * order, when receives are posted. One end then sleeps until the other end takes its last message. */
static void messages_without_room_hold_up_nothing_else(void)
{
	static const struct want sleeping = {
		.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE, .wait = FI_WAIT_FD};
	enum { MANY = 8000 };
	static unsigned char region[LONG];
	static unsigned numbers[MANY];
	struct fi_cq_tagged_entry e;
	struct fid_mr *mr;
	/* A quarter of the messages find room within the limit and in the ring. */
	setenv("FI_SQUALL_MAX_UNEXPECTED", "1000", 1);
	setenv("FI_SQUALL_SHM_RING", "64K", 1);
	begin("20s");
	open_here(&sleeping);
	talk();
	abi_fill(region, LONG, 900 + (unsigned)side);
	EQUAL(fi_mr_reg(a.domain, region, sizeof(region), FI_REMOTE_READ, 0, 77, 0, &mr, NULL), 0);
	abi_fill(out, LONG, 700 + (unsigned)side);
	RETRY(&a, fi_tsend(a.ep, out, LONG, NULL, peer, 1, out));
	for (unsigned n = 0; n < MANY; n++)
		RETRY(&a, fi_tinject(a.ep, &n, sizeof(n), peer, 2));
	say('s');
	EQUAL(hear(), 's');
	EQUAL(fi_trecv(a.ep, in, LONG, NULL, peer, 1, 0, in), 0);
	/* This end receives the message, and the other end receives its own. */
	abi_expect(&a, NULL, &e);
	abi_expect(&a, NULL, &e);
	abi_verify(in, LONG, 700 + !side);
	RETRY(&a, fi_read(a.ep, in, LONG, NULL, peer, 0, fi_mr_key(mr), in));
	abi_expect(&a, NULL, &e);
	abi_verify(in, LONG, 900 + !side);
	if (!side) {
		RETRY(&a, fi_tsend(a.ep, out, 20000, NULL, peer, 2, out));
		say('w');
		EQUAL(fi_cq_sread(a.cq, &e, 1, NULL, 15000), 1);
		CHECK(e.op_context == out);
	} else {
		/* The other end may still read from this one. */
		EQUAL(hear_and_serve(), 'w');
		sleep(1);
	}
	for (unsigned n = 0; n < MANY; n++)
		EQUAL(fi_trecv(a.ep, &numbers[n], sizeof(*numbers), NULL, peer, 2, 0, &numbers[n]), 0);
	for (unsigned n = 0; n < MANY; n++)
		abi_expect(&a, NULL, &e);
	for (unsigned n = 0; n < MANY; n++)
		EQUAL(numbers[n], n);
	if (side) {
		EQUAL(fi_trecv(a.ep, in, 20000, NULL, peer, 2, 0, in), 0);
		abi_expect(&a, NULL, &e);
		abi_verify(in, 20000, 700);
	}
	EQUAL(fi_close(&mr->fid), 0);
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

/* Who closes, or a child of fork that leaves: the link of its parent goes on, and nobody is kept in the dark by a child
 * that holds the parent's sockets. */
static void a_child_of_fork_leaves_the_link_alone(void)
{
	struct fi_cq_tagged_entry e;
	begin("2s");
	open_here(&plain);
	talk();
	for (int leaves = 0; leaves < 3; leaves++) {
		pid_t third = fork();
		if (third == 0) {
			if (leaves == 0) {
				EQUAL(fi_send(a.ep, out, 8, NULL, peer, NULL), -FI_ENODEV);
				EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
				abi_close(&a);
				_exit(0);
			}
			if (leaves == 1)
				execlp("true", "true", NULL);
			exit(7);
		}
		EQUAL(waitpid(third, NULL, 0), third);
		for (unsigned round = 0; round < 14; round++)
			exchange(round % 2 ? 64 : LONG, 200 + 20 * (unsigned)leaves + round);
	}
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

/* The peer leaves, in order or not, while a child that it forked holds everything: that is noticed. */
static void leaves_a_child_behind(int killed)
{
	struct fi_cq_err_entry err;
	struct iovec iov = {out, 8};
	begin("2s");
	open_here(&plain);
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = peer, .context = out};
	talk();
	if (side) {
		int outlives = fork();
		if (outlives == 0) {
			prctl(PR_SET_PDEATHSIG, 0);
			close(pipe_fd);
			sleep(4);
			_exit(0);
		}
		say('x');
		if (killed)
			raise(SIGKILL);
		abi_close(&a);
		exit(0);
	}
	hear();
	child_ended(killed ? SIGKILL : 0);
	double start = abi_now();
	RETRY(&a, fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE));
	abi_expect_error(&a, NULL, &err);
	CHECK(err.op_context == out && abi_now() - start < 10.0);
	abi_close(&a);
}

static void a_child_of_fork_outlives_its_parent(void)
{
	leaves_a_child_behind(1);
}

static void a_child_of_fork_outlives_its_parents_endpoint(void)
{
	leaves_a_child_behind(0);
}

/* The memory that three processes share: one endpoint that asks, and two that answer. */
struct trio {
	struct sockaddr_in asks, answers[2];
	_Atomic int opened, introduced;
};

/* Answers every message, until the process is killed. */
static void answer(struct trio *t, int which)
{
	struct fi_cq_tagged_entry e;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	abi_open(&a, &plain);
	t->answers[which] = a.name;
	t->opened++;
	while (!t->introduced)
		usleep(1000);
	peer = abi_insert(&a, &t->asks);
	for (;;) {
		EQUAL(fi_trecv(a.ep, in, 64, NULL, FI_ADDR_UNSPEC, 7, 0, in), 0);
		while (fi_cq_read(a.cq, &e, 1) != 1)
			usleep(100);
		RETRY(&a, fi_tinject(a.ep, out, 64, peer, 8));
	}
}

static void ask(fi_addr_t whom)
{
	struct fi_cq_tagged_entry e;
	EQUAL(fi_trecv(a.ep, in, 64, NULL, whom, 8, 0, in), 0);
	RETRY(&a, fi_tsend(a.ep, out, 64, NULL, whom, 7, out));
	for (int got = 0; got < 2; got++)
		abi_expect(&a, NULL, &e);
}

/* This leaves time for channels to open and close. */
static void pause_with_progress(void)
{
	double end = abi_now() + 0.5;
	while (abi_now() < end)
		(void)fi_cq_read(a.cq, NULL, 0);
}

/* The channel to one peer closes while a child of fork holds its descriptors, the channel of the next peer gets the
 * same numbers, and then the first peer dies. The second peer must count as alive. */
static void the_end_of_a_closed_peer(void)
{
	pid_t others[2];
	struct trio *t = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(t != MAP_FAILED);
	setenv("FI_SQUALL_SHM", "yes", 1);
	setenv("FI_SQUALL_DEADLINE", "20s", 1);
	for (int n = 0; n < 2; n++) {
		others[n] = fork();
		CHECK(others[n] >= 0);
		if (others[n] == 0)
			answer(t, n);
	}
	abi_open(&a, &plain);
	double end = abi_now() + PATIENCE;
	while (t->opened < 2) {
		CHECK(abi_now() < end);
		usleep(1000);
	}
	t->asks = a.name;
	t->introduced = 1;
	fi_addr_t left = abi_insert(&a, &t->answers[0]);
	ask(left);
	pause_with_progress();
	ask(left);
	CHECK(mappings() > 0);
	pid_t holder = fork();
	if (holder == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sleep(100);
		_exit(0);
	}
	EQUAL(fi_av_remove(a.av, &left, 1, 0), 0);
	pause_with_progress();
	fi_addr_t next = abi_insert(&a, &t->answers[1]);
	ask(next);
	pause_with_progress();
	ask(next);
	CHECK(mappings() > 0);
	EQUAL(kill(others[0], SIGKILL), 0);
	EQUAL(waitpid(others[0], NULL, 0), others[0]);
	pause_with_progress();
	ask(next);
	EQUAL(kill(holder, SIGKILL), 0);
	EQUAL(kill(others[1], SIGKILL), 0);
	EQUAL(waitpid(holder, NULL, 0), holder);
	EQUAL(waitpid(others[1], NULL, 0), others[1]);
	abi_close(&a);
}

/* The peer is killed with both rings full of what nobody took: what it sent arrives, the rest ends at once, and nothing
 * is left behind. */
static void killed_with_full_rings(void)
{
	/* A ring holds this many while the receiver takes none. */
	enum { SENT = 400 };
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	int first = begin("8s");
	unsigned long sockets[SOCKETS];
	open_here(&plain);
	talk();
	if (!first) {
		for (int n = 0; n < SENT; n++)
			RETRY(&a, fi_tinject(a.ep, &n, sizeof(n), peer, 1000));
		say('x');
		hear();
		/* Does nothing until it is killed. */
		sleep(100);
	}
	hear();
	say('x');
	int inflight = 0;
	static int numbers[4096];
	double start = abi_now();
	while (inflight < 400 && abi_now() - start < 3.0) {
		ssize_t rc = fi_tsend(a.ep, out, 4000, NULL, peer, 2000, &numbers[inflight]);
		CHECK(rc == 0 || rc == -FI_EAGAIN);
		inflight += rc == 0;
		(void)fi_cq_read(a.cq, NULL, 0);
	}
	EQUAL(kill(child, SIGKILL), 0);
	child_ended(SIGKILL);
	start = abi_now();
	for (int n = 0, got = -1; n < SENT; n++, got = -1) {
		EQUAL(fi_trecv(a.ep, &got, sizeof(got), NULL, peer, 1000, 0, &got), 0);
		for (int done = 0; !done;) {
			ssize_t rc = abi_next(&a, NULL, &e);
			if (rc == -FI_EAVAIL) {
				memset(&err, 0, sizeof(err));
				EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
				CHECK(err.op_context != (void *)&got);
				inflight--;
			} else {
				done = e.op_context == &got;
				inflight -= !done;
			}
		}
		EQUAL(got, n);
	}
	for (; inflight > 0; inflight--) {
		ssize_t rc = abi_next(&a, NULL, &e);
		if (rc == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
		}
	}
	EQUAL(fi_trecv(a.ep, in, 8, NULL, peer, 1000, 0, in), 0);
	abi_expect_error(&a, NULL, &err);
	CHECK(err.op_context == in && abi_now() - start < 4.0);
	EQUAL(mappings(), 0);
	int open_sockets = own_sockets(sockets);
	CHECK(open_sockets > 0);
	abi_close(&a);
	for (int n = 0; n < open_sockets; n++)
		EQUAL(is_socket_of_ours(sockets[n]), 0);
	EQUAL(statistic("shm_channels"), 1);
}

/* The kernel knows that the process of a stopped peer lives. The peer is waited for beyond the deadline, whatever was asked
 * of it, and everything ends as it should when the peer goes on. */
static void stopped_for_longer_than_the_deadline(void)
{
	struct fi_cq_tagged_entry e;
	struct iovec iov[2] = {{out, 8}, {out, LONG}};
	begin("2s");
	open_here(&plain);
	talk();
	if (side) {
		say('x');
		/* The process is stopped here, and goes on. */
		hear();
		for (int n = 0; n < 2; n++) {
			EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, peer, 5, 0, in), 0);
			abi_expect(&a, NULL, &e);
		}
	} else {
		hear();
		EQUAL(kill(child, SIGSTOP), 0);
		for (int n = 0; n < 2; n++) {
			struct fi_msg_tagged msg = {.msg_iov = &iov[n], .iov_count = 1, .addr = peer, .tag = 5, .context = &iov[n]};
			RETRY(&a, fi_tsendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE));
		}
		/* No region has this key. */
		EQUAL(fi_read(a.ep, in, 100, NULL, peer, 0, 1, in), 0);
		double end = abi_now() + 5.0;
		while (abi_now() < end)
			EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
		EQUAL(kill(child, SIGCONT), 0);
		say('x');
		int sent = 0, refused = 0;
		while (sent + refused < 3) {
			if (abi_next(&a, NULL, &e) == 1) {
				sent++;
				continue;
			}
			struct fi_cq_err_entry err = {0};
			EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
			CHECK(err.op_context == in && err.err != FI_ETIMEDOUT);
			refused++;
		}
		EQUAL(sent, 2);
	}
	exchange(LONG, 450);
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

static void stopped_for_a_while(void)
{
	begin("20s");
	open_here(&plain);
	talk();
	if (!side) {
		EQUAL(kill(child, SIGSTOP), 0);
		pid_t waker = fork();
		if (waker == 0) {
			sleep(2);
			kill(child, SIGCONT);
			_exit(0);
		}
	}
	for (unsigned round = 0; round < 20; round++)
		exchange(round % 2 ? 64 : LONG, 400 + round);
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

/* Messages, and a write and a read of memory, arrive whole; whether there are channels is looked at afterwards. */
static void everything_arrives(void)
{
	struct fi_cq_tagged_entry e;
	struct fid_mr *mr;
	static unsigned char region[LONG];
	open_here(&plain);
	talk();
	EQUAL(fi_mr_reg(a.domain, region, sizeof(region), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 99, 0, &mr, NULL), 0);
	exchange(8, 500);
	abi_fill(out, LONG, 600 + (unsigned)side);
	/* Without FI_MR_VIRT_ADDR: from the region's beginning. */
	RETRY(&a, fi_write(a.ep, out, LONG, NULL, peer, 0, fi_mr_key(mr), out));
	abi_expect(&a, NULL, &e);
	RETRY(&a, fi_read(a.ep, in, LONG, NULL, peer, 0, fi_mr_key(mr), in));
	abi_expect(&a, NULL, &e);
	CHECK(memcmp(in, out, LONG) == 0);
	exchange(8, 501);
	EQUAL(fi_close(&mr->fid), 0);
	finish();
}

/* process_vm_readv(2) is refused, at one end or at both, as Yama, a PID namespace, and containers do. */
static void without_reading_each_others_memory(void)
{
	begin("8s");
	if (side)
		refuse(SYS_process_vm_readv, EPERM);
	everything_arrives();
	EQUAL(statistic("shm_channels"), 2);
}

static void without_reading_any_memory(void)
{
	begin("8s");
	refuse(SYS_process_vm_readv, ENOSYS);
	everything_arrives();
	EQUAL(statistic("shm_channels"), 2);
}

/* The two processes could read each other's memory when they connected, and cannot any more, at one end or at both,
 * as when privileges change. Messages in flight must arrive, and so must later ones. */
static void memory_becomes_unreadable(int both)
{
	static unsigned char region[LONG], got[LONG];
	struct fi_cq_tagged_entry e;
	struct fid_mr *mr;
	begin("20s");
	open_here(&plain);
	talk();
	EQUAL(fi_mr_reg(a.domain, region, sizeof(region), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 99, 0, &mr, NULL), 0);
	if (side) {
		EQUAL(fi_trecv(a.ep, in, sizeof(in), NULL, peer, 700, 0, in), 0);
		say('r');
		EQUAL(hear(), 's');
		refuse(SYS_process_vm_readv, EPERM);
		abi_expect(&a, NULL, &e);
		CHECK(e.op_context == in && e.len == LONG);
		abi_verify(in, LONG, 900);
	} else {
		abi_fill(out, LONG, 900);
		EQUAL(hear(), 'r');
		RETRY(&a, fi_write(a.ep, out, LONG, NULL, peer, 0, fi_mr_key(mr), region));
		RETRY(&a, fi_tsend(a.ep, out, LONG, NULL, peer, 700, out));
		say('s');
		if (both)
			refuse(SYS_process_vm_readv, EPERM);
		for (int n = 0; n < 2; n++)
			abi_expect(&a, NULL, &e);
		RETRY(&a, fi_read(a.ep, got, LONG, NULL, peer, 0, fi_mr_key(mr), got));
		abi_expect(&a, NULL, &e);
		CHECK(memcmp(got, out, LONG) == 0);
	}
	for (unsigned round = 0; round < 14; round++)
		exchange(round % 2 ? 64 : LONG, 710 + round);
	EQUAL(fi_close(&mr->fid), 0);
	finish();
	EQUAL(statistic("shm_channels"), 2);
}

static void the_peers_memory_becomes_unreadable(void)
{
	memory_becomes_unreadable(0);
}

static void all_memory_becomes_unreadable(void)
{
	memory_becomes_unreadable(1);
}

/* Background progress answers a peer while its application makes no call, even where the kernel has no
 * membarrier(2). */
static void without_membarrier(void)
{
	static const struct want by_domain = {
		.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE,
		.threading = FI_THREAD_DOMAIN,
		.progress = FI_PROGRESS_MANUAL,
	};
	struct fi_cq_tagged_entry e;
	struct iovec iov = {out, 64};
	begin("5s");
	if (side)
		refuse(SYS_membarrier, ENOSYS);
	open_here(&by_domain);
	talk();
	struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = peer, .tag = 800, .context = out};
	if (side) {
		say('x');
		EQUAL(hear(), 'n');
	} else {
		EQUAL(hear(), 'x');
		RETRY(&a, fi_tsendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE | FI_COMPLETION));
		abi_expect(&a, NULL, &e);
		CHECK(e.op_context == out);
		say('n');
	}
	finish();
}

/* No memory to share, at the end that asks or at either. */
static void without_memfd(void)
{
	begin("8s");
	refuse(SYS_memfd_create, ENOSYS);
	everything_arrives();
	EQUAL(statistic("shm_channels"), 0);
	EQUAL(statistic("shm_tx_records"), 0);
}

/* Files must not have the size of a segment: the kernel kills who tries. */
static void without_large_files(void)
{
	struct rlimit limit = {100000, 100000};
	begin("8s");
	EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
	everything_arrives();
	EQUAL(statistic("shm_channels"), 0);
}

/* Numbers of processes mean nothing to the other one: no memory is read, but records go. */
static void in_other_pid_namespaces(void)
{
	if (unshare(CLONE_NEWPID) != 0) {
		printf("skipped: unshare needs root\n");
		return;
	}
	begin("8s");
	everything_arrives();
	EQUAL(statistic("shm_channels"), 2);
}

static void of_another_user(void)
{
	if (getuid() != 0) {
		printf("skipped: setuid needs root\n");
		return;
	}
	begin("8s");
	if (side) {
		unsetenv("FI_SQUALL_STATS");
		EQUAL(setgid(65534), 0);
		EQUAL(setuid(65534), 0);
	}
	everything_arrives();
	EQUAL(statistic("shm_channels"), 0);
}

/* Who does not want to, or looks at packets, does not. */
static void without_channels(const char *name, const char *value)
{
	begin("8s");
	if (side)
		setenv(name, value, 1);
	everything_arrives();
	EQUAL(statistic("shm_channels"), 0);
}

static void who_says_no(void)
{
	without_channels("FI_SQUALL_SHM", "no");
}

static void shared_memory_forbidden_for_an_endpoint(void)
{
	begin("8s");
	forbids = side;
	everything_arrives();
	EQUAL(statistic("shm_channels"), 0);
}

static void who_damages_packets(void)
{
	without_channels("FI_SQUALL_FAULT", "loss=1%,seed=1");
}

static const struct test tests[] = {
	TEST(neighbours_find_each_other, NULL, NULL, 0),
	TEST(an_end_comes_before_what_answers_it, NULL, NULL, 0),
	TEST(neighbours_that_sleep, NULL, NULL, 0),
	TEST(messages_without_room_hold_up_nothing_else, NULL, NULL, 0),
	TEST(a_child_of_fork_leaves_the_link_alone, NULL, NULL, 0),
	TEST(a_child_of_fork_outlives_its_parent, NULL, NULL, 0),
	TEST(a_child_of_fork_outlives_its_parents_endpoint, NULL, NULL, 0),
	TEST(the_end_of_a_closed_peer, NULL, NULL, 0, {"FI_SQUALL_PEERS=av"}),
	TEST(killed_with_full_rings, NULL, NULL, 0),
	TEST(stopped_for_longer_than_the_deadline, NULL, NULL, 0),
	TEST(stopped_for_a_while, NULL, NULL, 0),
	TEST(without_reading_each_others_memory, NULL, NULL, 0),
	TEST(without_reading_any_memory, NULL, NULL, 0),
	TEST(the_peers_memory_becomes_unreadable, NULL, NULL, 0),
	TEST(all_memory_becomes_unreadable, NULL, NULL, 0),
	TEST(without_membarrier, NULL, NULL, 0, {"FI_SQUALL_ATTEND=1ms"}),
	TEST(without_memfd, NULL, NULL, 0),
	TEST(without_large_files, NULL, NULL, 0),
	TEST(in_other_pid_namespaces, NULL, NULL, 0),
	TEST(of_another_user, NULL, NULL, 0),
	TEST(who_says_no, NULL, NULL, 0),
	TEST(shared_memory_forbidden_for_an_endpoint, NULL, NULL, 0),
	TEST(who_damages_packets, NULL, NULL, 0),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
