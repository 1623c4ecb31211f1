/* Tests that run in a process each, because each needs its own parameters: `PROGRAM` runs all, `PROGRAM - PART`
 * runs those with PART in their names, and `PROGRAM NAME` runs one in this process, with the parameters of the
 * environment. */
#ifndef SQUALL_OWN_PROCESS_H
#define SQUALL_OWN_PROCESS_H

#include <fcntl.h>

#include "abi.h"

static const char *program;
static char stats[512];
static struct node a, b;
static fi_addr_t to_b;
static int contexts[64] __attribute__((unused));
static unsigned char buf[1 << 16];

static const struct want plain = {.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE};

static inline void turns(int n)
{
	for (int i = 0; i < n; i++) {
		(void)fi_cq_read(a.cq, NULL, 0);
		(void)fi_cq_read(b.cq, NULL, 0);
	}
}

static inline void open_pair(const struct want *want)
{
	abi_open(&a, want);
	abi_open(&b, want);
	to_b = abi_insert(&a, &b.name);
}

/* a knows b. */
static inline void meet(void)
{
	struct fi_cq_tagged_entry e;
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b};
	EQUAL(fi_recv(b.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	abi_expect(&a, &b, &e);
	abi_expect(&b, &a, &e);
}

/* A counter summed over the endpoints that closed. */
static inline unsigned long statistic(const char *name)
{
	char line[16384], wanted[64];
	unsigned long sum = 0;
	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	FILE *f = fopen(stats, "r");
	if (!f)
		FAIL("%s was not written", stats);
	while (fgets(line, sizeof(line), f)) {
		char *at = strstr(line, wanted);
		if (!at)
			FAIL("the statistics have no %s", name);
		sum += strtoul(at + strlen(wanted), NULL, 10);
	}
	fclose(f);
	return sum;
}

/* From here on stderr goes into a file, for `log_says`. */
static int log_fd = -1, log_screen;

static inline void log_begin(void)
{
	char file[600];
	snprintf(file, sizeof(file), "%s.log", stats);
	log_fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
	log_screen = dup(2);
	CHECK(log_fd >= 0 && log_screen >= 0);
	unlink(file);
	dup2(log_fd, 2);
}

/* Back to the screen, with what the log has. */
static inline void log_read(char *text, size_t size)
{
	dup2(log_screen, 2);
	ssize_t len = pread(log_fd, text, size - 1, 0);
	CHECK(len >= 0);
	text[len] = 0;
	close(log_fd);
}

/* Back to the screen; the log must have all of these words. */
static inline void log_says(const char *words[], int n)
{
	char text[8192];
	log_read(text, sizeof(text));
	for (int i = 0; i < n; i++)
		if (!strstr(text, words[i]))
			FAIL("the log does not say %s but: %s", words[i], text);
}

/* Opens a pair, sends a message and closes it. Nothing is printed about a provider that was not named. */
static inline void use_silently(const struct want *want)
{
	char text[8192];
	struct fi_cq_tagged_entry e;
	log_begin();
	open_pair(want);
	EQUAL(fi_recv(b.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(fi_send(a.ep, buf, 8, NULL, to_b, buf), 0);
	abi_expect(&a, &b, &e);
	CHECK(e.op_context == buf);
	abi_expect(&b, &a, &e);
	abi_close(&a);
	abi_close(&b);
	log_read(text, sizeof(text));
	CHECK(!strstr(text, "messages go through squall") && !strstr(text, "set FI_PROVIDER"));
}

struct test {
	const char *name;
	void (*run)(void);
	/* Its network; with a trailer that is computed over the payload, so that payload is read here. */
	const char *fault, *crc;
	int reads_log;
	/* Of the environment, NAME=value, or NULL. */
	const char *env[3];
};

#define TEST(name, ...) {#name, name, __VA_ARGS__}

/* Runs one in a process of its own. Whether it passed. */
static inline int in_own_process(const struct test *test)
{
	int status = 0;
	double start = abi_now();
	pid_t child = fork();
	if (child == 0) {
		setenv("FI_SQUALL_ATTEND", "0ns", 1);
		if (test->reads_log) {
			setenv("FI_LOG_LEVEL", "warn", 1);
			setenv("FI_LOG_PROV", "squall", 1);
		}
		/* Dead peers are to be given up on soon, but not those of whom 20 % of the packets are lost. */
		if (test->fault)
			setenv("FI_SQUALL_DEADLINE", "20s", 1);
		if (test->fault)
			setenv("FI_SQUALL_FAULT", test->fault, 1);
		if (test->crc)
			setenv("FI_SQUALL_CRC", test->crc, 1);
		for (int i = 0; i < 3; i++)
			if (test->env[i])
				putenv(strdup(test->env[i]));
		execl(program, program, test->name, NULL);
		_exit(9);
	}
	EQUAL(waitpid(child, &status, 0), child);
	int passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	printf("%s %-40s %.2f s\n", passed ? "ok" : "FAILED", test->name, abi_now() - start);
	fflush(stdout);
	return passed;
}

/* What main does: one test by name, or all. */
static inline int run_tests(int argc, char **argv, const struct test *tests, int count)
{
	int failed = 0, run = 0;
	const char *part = argc == 3 && strcmp(argv[1], "-") == 0 ? argv[2] : NULL;
	program = argv[0];
	if (argc > 1 && !part) {
		char option[600];
		snprintf(stats, sizeof(stats), "%s.%d.json", program, (int)getpid());
		snprintf(option, sizeof(option), "json:%s", stats);
		setenv("FI_SQUALL_STATS", option, 1);
		unlink(stats);
		for (int i = 0; i < count; i++)
			if (strcmp(argv[1], tests[i].name) == 0) {
				tests[i].run();
				unlink(stats);
				return 0;
			}
		FAIL("there is no test %s", argv[1]);
	}
	for (int i = 0; i < count; i++)
		if (!part || strstr(tests[i].name, part)) {
			failed += !in_own_process(&tests[i]);
			run++;
		}
	printf("%d tests, %d failed\n", run, failed);
	return failed > 0 || run == 0;
}

#endif
