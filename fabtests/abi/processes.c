/* Several processes: exchange, a peer that is not there, one that dies, fork, and the end of a process. */
#include <poll.h>

#include "abi.h"

static const struct want everything = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE};

/* Swaps endpoint names with the other process. */
static void swap_names(int fd, const struct sockaddr_in *mine, struct sockaddr_in *theirs)
{
	EQUAL(write(fd, mine, sizeof(*mine)), sizeof(*mine));
	EQUAL(read(fd, theirs, sizeof(*theirs)), sizeof(*theirs));
}

static void child_ended(pid_t child, int expected)
{
	int status = 0;
	EQUAL(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	EQUAL(WEXITSTATUS(status), expected);
}

/* Messages both ways at once, of all protocols. */
static void talk(int fd, unsigned side)
{
	static unsigned char out[200000], in[200000];
	size_t lens[] = {0, 8, 3000, 70000, 200000};
	struct sockaddr_in theirs;
	struct node n;
	abi_open(&n, &everything);
	swap_names(fd, &n.name, &theirs);
	fi_addr_t peer = abi_insert(&n, &theirs);
	for (unsigned round = 0; round < 40; round++) {
		size_t len = lens[round % 5];
		struct fi_cq_tagged_entry e;
		abi_fill(out, len, side + round);
		EQUAL(fi_trecv(n.ep, in, sizeof(in), NULL, peer, round, 0, in), 0);
		RETRY(&n, fi_tsend(n.ep, out, len, NULL, peer, round, out));
		for (int got = 0; got < 2; got++)
			abi_expect(&n, NULL, &e);
		abi_verify(in, len, 1 - side + round);
	}
	abi_close(&n);
}

static void two_processes(void)
{
	int fds[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid_t child = fork();
	if (child == 0) {
		talk(fds[1], 1);
		exit(0);
	}
	talk(fds[0], 0);
	child_ended(child, 0);
	close(fds[0]);
	close(fds[1]);
}

/* Nobody has this port: every operation ends with an error that says who, from where and why. */
static void nobody_there(void)
{
	struct node n, gone;
	abi_open(&n, &everything);
	abi_open(&gone, &everything);
	fi_addr_t peer = abi_insert(&n, &gone.name);
	unsigned port = ntohs(gone.name.sin_port);
	abi_close(&gone);
	static char buf[100000];
	double start = abi_now();
	RETRY(&n, fi_send(n.ep, buf, 10, NULL, peer, &buf[0]));
	RETRY(&n, fi_tsend(n.ep, buf, 100000, NULL, peer, 1, &buf[1]));
	RETRY(&n, fi_read(n.ep, buf, 10, NULL, peer, 0, 1, &buf[2]));
	int seen = 0;
	for (int i = 0; i < 3; i++) {
		struct fi_cq_err_entry err;
		abi_expect_error(&n, NULL, &err);
		CHECK(err.op_context >= (void *)&buf[0] && err.op_context <= (void *)&buf[2]);
		seen |= 1 << ((char *)err.op_context - buf);
		CHECK(err.err == FI_EHOSTUNREACH || err.err == FI_ETIMEDOUT || err.err == FI_ECONNREFUSED);
		const char *text = fi_cq_strerror(n.cq, err.prov_errno, err.err_data, NULL, 0);
		char want[32];
		snprintf(want, sizeof(want), "127.0.0.1:%u", port);
		if (!strstr(text, want) || !strstr(text, "local 127.0.0.1") || !strstr(text, "refused"))
			FAIL("the text lacks something: %s", text);
		CHECK(err.err_data_size == 0 || strcmp(err.err_data, text) == 0);
	}
	EQUAL(seen, 7);
	/* runs.toml sets FI_SQUALL_DEADLINE to two seconds. */
	CHECK(abi_now() - start < 30.0);
	abi_close(&n);
}

/* The peer dies in the middle; what is under way fails, and so does what comes later. */
static void peer_dies(void)
{
	int fds[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid_t child = fork();
	struct sockaddr_in theirs;
	struct node n;
	struct fi_cq_tagged_entry e;
	static char buf[64];
	abi_open(&n, &everything);
	swap_names(fds[child == 0], &n.name, &theirs);
	fi_addr_t peer = abi_insert(&n, &theirs);
	EQUAL(fi_recv(n.ep, buf, sizeof(buf), NULL, peer, NULL), 0);
	RETRY(&n, fi_send(n.ep, buf, 8, NULL, peer, NULL));
	abi_expect(&n, NULL, &e);
	abi_expect(&n, NULL, &e);
	if (child == 0) {
		char go;
		EQUAL(read(fds[1], &go, 1), 1);
		_exit(3);
	}
	EQUAL(write(fds[0], "x", 1), 1);
	child_ended(child, 3);
	/* A short send to a peer that was alive may complete when it is copied, unless told to wait. */
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = peer, .context = buf};
	RETRY(&n, fi_sendmsg(n.ep, &msg, FI_TRANSMIT_COMPLETE));
	struct fi_cq_err_entry err;
	abi_expect_error(&n, NULL, &err);
	CHECK(err.op_context == buf && err.err > 0);
	close(fds[0]);
	close(fds[1]);
	abi_close(&n);
}

/* A forked child must not use, nor hurt, its parent's endpoint; it may open its own. */
static void forked(void)
{
	struct node n, other;
	struct fi_cq_tagged_entry e;
	char buf[8] = "1234567", got[8] = "";
	abi_open(&n, &everything);
	fi_addr_t self = abi_insert(&n, &n.name);
	pid_t child = fork();
	if (child == 0) {
		EQUAL(fi_send(n.ep, buf, 8, NULL, self, NULL), -FI_ENODEV);
		EQUAL(fi_recv(n.ep, got, 8, NULL, self, NULL), -FI_ENODEV);
		EQUAL(fi_cq_read(n.cq, &e, 1), -FI_EAGAIN);
		abi_close(&n);
		abi_open(&other, &everything);
		abi_close(&other);
		exit(0);
	}
	child_ended(child, 0);
	EQUAL(fi_recv(n.ep, got, 8, NULL, self, got), 0);
	RETRY(&n, fi_send(n.ep, buf, 8, NULL, self, buf));
	abi_expect(&n, NULL, &e);
	abi_expect(&n, NULL, &e);
	CHECK(memcmp(buf, got, 8) == 0);
	abi_close(&n);
}

/* A forked child that waits on its parent's queue is refused, and takes no wake-up from the parent. */
static void forked_waiting(void)
{
	struct want want = everything;
	struct node n;
	struct fi_cq_tagged_entry e;
	char buf[8] = "1234567", got[8] = "";
	int fd, go[2];
	want.progress = FI_PROGRESS_AUTO;
	want.wait = FI_WAIT_FD;
	abi_open(&n, &want);
	fi_addr_t self = abi_insert(&n, &n.name);
	EQUAL(fi_control(&n.cq->fid, FI_GETWAIT, &fd), 0);
	EQUAL(pipe(go), 0);
	EQUAL(fi_recv(n.ep, got, 8, NULL, self, got), 0);
	struct fid *fids[] = {&n.cq->fid};
	while (fi_trywait(n.fabric, fids, 1) != 0)
		EQUAL(fi_cq_read(n.cq, &e, 1), -FI_EAGAIN);
	pid_t child = fork();
	if (child == 0) {
		char c;
		EQUAL(read(go[0], &c, 1), 1);
		EQUAL(fi_cq_sread(n.cq, &e, 1, NULL, 10), -FI_ENODEV);
		exit(0);
	}
	RETRY(&n, fi_send(n.ep, buf, 8, NULL, self, buf));
	/* The progress thread has told the queue of both by then. */
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	EQUAL(poll(&poll_fd, 1, 5000), 1);
	usleep(100000);
	EQUAL(write(go[1], "x", 1), 1);
	child_ended(child, 0);
	EQUAL(poll(&poll_fd, 1, 0), 1);
	abi_expect(&n, NULL, &e);
	abi_expect(&n, NULL, &e);
	close(go[0]);
	close(go[1]);
	abi_close(&n);
}

/* What was injected arrives although the sender closes at once. */
static void last_words(void)
{
	struct node n, other;
	struct fi_cq_tagged_entry e;
	char got[8] = "";
	int fds[2];
	EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid_t child = fork();
	struct sockaddr_in theirs;
	if (child == 0) {
		abi_open(&other, &everything);
		swap_names(fds[1], &other.name, &theirs);
		fi_addr_t peer = abi_insert(&other, &theirs);
		for (int i = 0; i < 50; i++)
			RETRY(&other, fi_inject(other.ep, "farewell", 8, peer));
		abi_close(&other);
		exit(0);
	}
	abi_open(&n, &everything);
	swap_names(fds[0], &n.name, &theirs);
	for (int i = 0; i < 50; i++) {
		EQUAL(fi_recv(n.ep, got, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
		abi_expect(&n, NULL, &e);
		CHECK(memcmp(got, "farewell", 8) == 0);
	}
	child_ended(child, 0);
	close(fds[0]);
	close(fds[1]);
	abi_close(&n);
}

static const char *program;

/* Ends without closing anything, as oneCCL does: must neither crash nor hang; the statistics are written. */
static void left_open(void)
{
	/* Beside the program. */
	char pattern[512], path[512];
	snprintf(pattern, sizeof(pattern), "json:%s.%%p.json", program);
	pid_t child = fork();
	if (child == 0) {
		/* A fresh process image, so that parameters are read again. */
		setenv("FI_SQUALL_STATS", pattern, 1);
		execl(program, program, "--leave-open", NULL);
		_exit(9);
	}
	child_ended(child, 0);
	snprintf(path, sizeof(path), "%s.%d.json", program, (int)child);
	FILE *f = fopen(path, "r");
	if (!f)
		FAIL("%s was not written", path);
	char line[64] = "";
	CHECK(fgets(line, sizeof(line), f) && strncmp(line, "{\"pid\":", 7) == 0);
	fclose(f);
	unlink(path);
}

enum { PROMISES = 60 };

static size_t promised_length(unsigned i)
{
	return (i * 1231 + 7) % 12000;
}

/* Sends messages whose completions come at once, writes over them, and leaves: by closing the endpoint or without. */
static void promise(int fd, int closes)
{
	static unsigned char out[12000];
	struct sockaddr_in theirs;
	struct fi_cq_tagged_entry e;
	struct node n;
	abi_open(&n, &everything);
	swap_names(fd, &n.name, &theirs);
	fi_addr_t peer = abi_insert(&n, &theirs);
	for (unsigned i = 0; i < PROMISES; i++) {
		abi_fill(out, promised_length(i), i);
		RETRY(&n, fi_tsend(n.ep, out, promised_length(i), NULL, peer, i, out));
		abi_expect(&n, NULL, &e);
		memset(out, 0xee, sizeof(out));
	}
	if (closes)
		abi_close(&n);
	exit(0);
}

/* What was said to be sent arrives, whatever is lost on the way, and whether or not its sender closes its endpoint. */
static void promises(void)
{
	static unsigned char in[12000];
	for (int closes = 0; closes < 2; closes++) {
		struct sockaddr_in theirs;
		struct fi_cq_tagged_entry e;
		struct node n;
		int fds[2];
		EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		pid_t child = fork();
		if (child == 0) {
			char fd[12];
			snprintf(fd, sizeof(fd), "%d", fds[1]);
			setenv("FI_SQUALL_FAULT", "loss=25%,seed=3", 1);
			setenv("FI_SQUALL_ATTEND", "0ns", 1);
			execl(program, program, closes ? "--promise-close" : "--promise-exit", fd, NULL);
			_exit(9);
		}
		abi_open(&n, &everything);
		swap_names(fds[0], &n.name, &theirs);
		for (unsigned i = 0; i < PROMISES; i++) {
			EQUAL(fi_trecv(n.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, i, 0, in), 0);
			abi_expect(&n, NULL, &e);
			EQUAL(e.len, promised_length(i));
			abi_verify(in, e.len, i);
		}
		child_ended(child, 0);
		close(fds[0]);
		close(fds[1]);
		abi_close(&n);
	}
}

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc > 2 && strncmp(argv[1], "--promise-", 10) == 0)
		promise(atoi(argv[2]), strcmp(argv[1], "--promise-close") == 0);
	if (argc > 1 && strcmp(argv[1], "--leave-open") == 0) {
		struct want want = everything;
		struct node manual, automatic;
		abi_open(&manual, &want);
		want.progress = FI_PROGRESS_AUTO;
		abi_open(&automatic, &want);
		exit(0);
	}
	RUN(two_processes);
	RUN(nobody_there);
	RUN(peer_dies);
	RUN(forked);
	RUN(forked_waiting);
	RUN(last_words);
	RUN(left_open);
	RUN(promises);
	printf("%d checks\n", abi_checks);
	return 0;
}
