/* Drives a network plugin of NCCL as NCCL does: a ring of processes, each of which sends to the next one and receives from
 * the one before, contents checked, nothing beside what was received touched.
 *
 *     net PLUGIN RANKS TEST MEMORY    one test; status 77 when the plugin finds no network that has such memory
 *     net list                        the tests' names
 *
 * MEMORY is host, or device: that of the HIP runtime that the plugin was linked with.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../hosts.h"
#include "net.h"

#define NO_NETWORK 77
#define MOST_RANKS 16
#define GROUP 8
#define KIB 1024UL
#define MIB (1024UL * KIB)
/* Bytes before and behind each buffer that stay as they were. */
#define MARGIN 64
#define CANARY 0xc5

static const struct nccl_net *net;
static struct nccl_properties properties;
static int rank, ranks;
/* Handles go backwards: a process reads what the next one listens at. */
static int handles[MOST_RANKS][2];
static time_t deadline;

#define FAIL(...)                                                        \
	do {                                                             \
		fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, rank); \
		fprintf(stderr, __VA_ARGS__);                            \
		fprintf(stderr, "\n");                                   \
		_exit(1);                                                \
	} while (0)

#define CHECK(cond)                                                      \
	do {                                                             \
		if (!(cond))                                             \
			FAIL("not true: %s", #cond);                     \
	} while (0)

/* A call of the plugin's, which must succeed. */
#define CALL(call)                                                       \
	do {                                                             \
		int rc = (call);                                         \
		if (rc)                                                  \
			FAIL("%s: %d", #call, rc);                       \
	} while (0)

static void in_time(const char *what)
{
	if (time(NULL) >= deadline)
		FAIL("no end: %s", what);
}

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	char text[1024];
	va_list arguments;
	(void)flags;
	if (level != NCCL_LOG_WARN && !(level == NCCL_LOG_INFO && getenv("NCCL_DEBUG")))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* One write, for all processes say something at once. */
	fprintf(stderr, "rank %d: %s:%d: %s\n", rank, file, line, text);
}

/* Connections of a process: to the next one, and from the one before. */
struct ring {
	void *listen, *to, *from;
};

static struct ring join(void)
{
	struct ring ring = {0};
	char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	CALL(net->listen(0, handle, &ring.listen));
	CHECK(write(handles[(rank + ranks - 1) % ranks][1], handle, sizeof(handle)) == sizeof(handle));
	CHECK(read(handles[rank][0], handle, sizeof(handle)) == sizeof(handle));
	while (!ring.to || !ring.from) {
		void *offload = NULL;
		if (!ring.to)
			CALL(net->connect(0, handle, &ring.to, &offload));
		if (!ring.from)
			CALL(net->accept(ring.listen, &ring.from, &offload));
		in_time("connect and accept");
	}
	return ring;
}

static void leave(struct ring *ring)
{
	CALL(net->close_send(ring->to));
	CALL(net->close_recv(ring->from));
	CALL(net->close_listen(ring->listen));
}

/* The runtime of devices, where their memory is used. */
static struct {
	int (*alloc)(void **at, size_t len);
	int (*release)(void *at);
	int (*copy)(void *to, const void *from, size_t len, int kind);
} device;

enum { TO_DEVICE = 1, TO_HOST = 2 };

/* A registered buffer between margins. */
struct buffer {
	/* What the plugin sees, and the host's copy of it; the same, but with memory of a device. */
	unsigned char *at, *host;
	size_t len;
	void *comm, *mr;
};

static void put(const struct buffer *buffer)
{
	if (buffer->at != buffer->host)
		CALL(device.copy(buffer->at, buffer->host, buffer->len, TO_DEVICE));
}

static void get(const struct buffer *buffer)
{
	if (buffer->at != buffer->host)
		CALL(device.copy(buffer->host, buffer->at, buffer->len, TO_HOST));
}

/* With its margins. */
static struct buffer whole(const struct buffer *buffer)
{
	return (struct buffer){.at = buffer->at - MARGIN, .host = buffer->host - MARGIN, .len = buffer->len + 2 * MARGIN};
}

/* A part of it, not registered anew. */
static struct buffer part_of(const struct buffer *buffer, size_t offset, size_t len)
{
	return (struct buffer){buffer->at + offset, buffer->host + offset, len, buffer->comm, buffer->mr};
}

static int memory(void)
{
	return device.alloc ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
}

static struct buffer take(void *comm, size_t len)
{
	struct buffer buffer = {.len = len, .comm = comm}, all;
	size_t room = len + 2 * MARGIN;
	void *at;
	buffer.host = aligned_alloc(4096, (room + 4095) & ~4095UL);
	CHECK(buffer.host);
	at = buffer.host;
	if (device.alloc)
		CALL(device.alloc(&at, room));
	buffer.host += MARGIN;
	buffer.at = (unsigned char *)at + MARGIN;
	all = whole(&buffer);
	memset(all.host, CANARY, all.len);
	put(&all);
	CALL(net->reg_mr(comm, buffer.at, len ? len : 1, memory(), &buffer.mr));
	return buffer;
}

static void give_back(struct buffer *buffer)
{
	struct buffer all = whole(buffer);
	CALL(net->dereg_mr(buffer->comm, buffer->mr));
	get(&all);
	for (size_t i = 0; i < MARGIN; i++)
		if (all.host[i] != CANARY || all.host[all.len - 1 - i] != CANARY)
			FAIL("bytes beside a buffer of %zu were written", buffer->len);
	if (all.at != all.host)
		CALL(device.release(all.at));
	free(all.host);
}

/* The word at a place of a message, of which each has a number. */
static uint64_t word(uint64_t message, size_t at)
{
	uint64_t x = (message << 40 ^ at) + 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	return x ^ x >> 27;
}

static void fill(const struct buffer *buffer, size_t len, uint64_t message)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t x = word(message, i);
		memcpy(buffer->host + i, &x, len - i < 8 ? len - i : 8);
	}
	put(buffer);
}

/* Whether it is all there, and nothing behind it. */
static int holds(const struct buffer *buffer, size_t len, uint64_t message)
{
	const unsigned char *at = buffer->host;
	get(buffer);
	for (size_t i = 0; i < len; i += 8) {
		uint64_t x = word(message, i);
		if (memcmp(at + i, &x, len - i < 8 ? len - i : 8))
			return 0;
	}
	for (size_t i = len; i < buffer->len; i++)
		if (at[i] != CANARY)
			return 0;
	return 1;
}

/* A send, or a receive of several messages at once. */
struct transfer {
	/* The communicator; a process has few. */
	void *comm;
	int sends, count;
	struct buffer *buffers[GROUP];
	/* Of a send, how much of the buffer. */
	size_t len;
	int tags[GROUP];
	/* Its completion may come before its bytes. */
	int early;
	enum { WAITS, RUNS, FLUSHES, DONE } state;
	void *request;
	/* What arrived. */
	int lens[GROUP];
};

static struct transfer sending(struct buffer *buffer, size_t len, int tag)
{
	return (struct transfer){.comm = buffer->comm, .sends = 1, .count = 1, .buffers = {buffer}, .len = len, .tags = {tag}};
}

static struct transfer receiving(struct buffer *buffer, int tag)
{
	return (struct transfer){.comm = buffer->comm, .count = 1, .buffers = {buffer}, .tags = {tag}};
}

/* What the calls for several receives take. */
struct lists {
	void *data[GROUP], *mrs[GROUP];
	size_t lens[GROUP];
};

static struct lists lists(const struct transfer *t)
{
	struct lists l;
	for (int i = 0; i < t->count; i++) {
		l.data[i] = t->buffers[i]->at;
		l.mrs[i] = t->buffers[i]->mr;
		l.lens[i] = t->buffers[i]->len;
	}
	return l;
}

static void start(struct transfer *t)
{
	struct lists l = lists(t);
	t->request = t->early ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;
	if (t->sends)
		CALL(net->isend(t->comm, l.data[0], t->len, t->tags[0], l.mrs[0], &t->request));
	else
		CALL(net->irecv(t->comm, t->count, l.data, l.lens, t->tags, l.mrs, &t->request));
	if (t->request && t->request != NCCL_NET_OPTIONAL_RECV_COMPLETION)
		t->state = RUNS;
}

static void flush(struct transfer *t)
{
	struct lists l = lists(t);
	t->request = NULL;
	CALL(net->iflush(t->comm, t->count, l.data, t->lens, l.mrs, &t->request));
	t->state = t->request ? FLUSHES : DONE;
}

static void test(struct transfer *t)
{
	int done = 0, ignored[GROUP];
	CALL(net->test(t->request, &done, t->state == FLUSHES ? ignored : t->lens));
	if (!done)
		return;
	if (t->sends || t->state == FLUSHES || t->early)
		t->state = DONE;
	else
		flush(t);
}

/* Carries them out: at each communicator in this order, as many at once as a plugin must take. */
static void run(struct transfer *transfers, int count)
{
	for (int left = count; left; in_time("transfers")) {
		left = 0;
		for (int i = 0; i < count; i++) {
			struct transfer *t = &transfers[i];
			int before = 0, waiting = 0;
			if (t->state == DONE)
				continue;
			left++;
			for (int j = 0; j < i; j++) {
				int same = transfers[j].comm == t->comm;
				before += same && transfers[j].state != DONE;
				waiting += same && transfers[j].state == WAITS;
			}
			if (t->state != WAITS)
				test(t);
			else if (!waiting && before < NCCL_NET_MAX_REQUESTS)
				start(t);
		}
	}
}

/* A message each way round: what is sent, and what must arrive. */
static void exchange(struct ring *ring, size_t len, size_t room, uint64_t message)
{
	struct buffer out = take(ring->to, len), in = take(ring->from, room);
	struct transfer both[] = {sending(&out, len, 7), receiving(&in, 7)};
	fill(&out, len, message);
	run(both, 2);
	CHECK(both[1].lens[0] == (int)len);
	if (!holds(&in, len, message))
		FAIL("%zu bytes in room for %zu: other contents", len, room);
	give_back(&out);
	give_back(&in);
}

static void sizes(void)
{
	struct ring ring = join();
	for (size_t len = KIB; len <= 64 * MIB; len *= 2)
		for (int round = 0; round < (len < MIB ? 5 : 2); round++)
			exchange(&ring, len, len, len + (size_t)round);
	static const size_t odd[] = {0, 1, 3, 1023, 1025, 4095, 8191, 8193, 65537, 1000003};
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		exchange(&ring, odd[i], odd[i], i);
	leave(&ring);
}

/* A receive may have more room than there is sent. */
static void shorter(void)
{
	struct ring ring = join();
	for (size_t len = 1; len <= 4 * MIB; len *= 4)
		exchange(&ring, len, 2 * len + 100, len);
	leave(&ring);
}

/* Lengths of 1 KiB to 256 KiB, one after the other different. */
static size_t length(size_t number)
{
	return KIB + word(99, number) % (255 * KIB);
}

static void many(void)
{
	enum { MANY = 400 };
	static struct buffer out[MANY], in[MANY];
	static struct transfer both[2 * MANY];
	struct ring ring = join();
	for (size_t i = 0; i < MANY; i++) {
		out[i] = take(ring.to, length(i));
		in[i] = take(ring.from, length(i));
		fill(&out[i], out[i].len, i);
		both[2 * i] = sending(&out[i], out[i].len, (int)i);
		both[2 * i + 1] = receiving(&in[i], (int)i);
	}
	run(both, 2 * MANY);
	for (size_t i = 0; i < MANY; i++) {
		if (both[2 * i + 1].lens[0] != (int)in[i].len || !holds(&in[i], in[i].len, i))
			FAIL("message %zu of %zu bytes: other contents", i, in[i].len);
		give_back(&out[i]);
		give_back(&in[i]);
	}
	leave(&ring);
}

/* Messages that one request receives, told apart by their tags, sent the other way round. */
static void groups(void)
{
	struct ring ring = join();
	int most = properties.max_recvs < GROUP ? properties.max_recvs : GROUP;
	printf("groups of up to %d receives\n", most);
	for (int count = 1; count <= most; count++)
		for (size_t round = 0; round < 10; round++) {
			struct buffer out[GROUP], in[GROUP];
			struct transfer all[GROUP + 1], *receive = &all[count];
			*receive = (struct transfer){.comm = ring.from, .count = count};
			for (int i = 0; i < count; i++) {
				size_t number = round * GROUP + (size_t)i;
				out[i] = take(ring.to, length(number));
				in[i] = take(ring.from, 256 * KIB);
				fill(&out[i], out[i].len, number);
				all[count - 1 - i] = sending(&out[i], out[i].len, 100 + i);
				receive->buffers[i] = &in[i];
				receive->tags[i] = 100 + i;
			}
			run(all, count + 1);
			for (int i = 0; i < count; i++) {
				size_t number = round * GROUP + (size_t)i;
				if (receive->lens[i] != (int)out[i].len || !holds(&in[i], out[i].len, number))
					FAIL("message %d of %d, round %zu, %zu bytes: %d arrived, or other contents", i,
					     count, round, out[i].len, receive->lens[i]);
				give_back(&out[i]);
				give_back(&in[i]);
			}
		}
	leave(&ring);
}

/* Several communicators, used alternately. */
static void communicators(void)
{
	enum { RINGS = 6, EACH = 20 };
	struct ring rings[RINGS];
	static struct buffer out[RINGS * EACH], in[RINGS * EACH];
	static struct transfer both[2 * RINGS * EACH];
	for (int i = 0; i < RINGS; i++)
		rings[i] = join();
	for (size_t i = 0; i < RINGS * EACH; i++) {
		out[i] = take(rings[i % RINGS].to, length(i));
		in[i] = take(rings[i % RINGS].from, length(i));
		fill(&out[i], out[i].len, i);
		both[2 * i] = sending(&out[i], out[i].len, 1);
		both[2 * i + 1] = receiving(&in[i], 1);
	}
	run(both, 2 * RINGS * EACH);
	for (size_t i = 0; i < RINGS * EACH; i++) {
		if (!holds(&in[i], in[i].len, i))
			FAIL("message %zu: other contents", i);
		give_back(&out[i]);
		give_back(&in[i]);
	}
	for (int i = 0; i < RINGS; i++)
		leave(&rings[i]);
}

/* Connections that end and come again. */
static void again(void)
{
	for (size_t i = 0; i < 20; i++) {
		struct ring ring = join();
		exchange(&ring, 100 * KIB, 100 * KIB, i);
		leave(&ring);
	}
}

/* Who receives comes late. */
static void late(void)
{
	struct ring ring = join();
	for (size_t len = KIB; len <= 4 * MIB; len *= 16) {
		struct buffer out = take(ring.to, len), in = take(ring.from, len);
		struct transfer send = sending(&out, len, 1), receive = receiving(&in, 1);
		struct timespec begin, now;
		fill(&out, len, len);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		do {
			if (send.state == WAITS)
				start(&send);
			else if (send.state == RUNS)
				test(&send);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 200);
		struct transfer both[] = {send, receive};
		run(both, 2);
		if (!holds(&in, len, len))
			FAIL("%zu bytes: other contents", len);
		give_back(&out);
		give_back(&in);
	}
	leave(&ring);
}

/* Receives whose completion need not wait for the bytes: NCCL looks for these itself (protocols LL and LL128). */
static void early(void)
{
	struct ring ring = join();
	for (size_t i = 0; i < 100; i++) {
		size_t len = 1 + length(i);
		struct buffer out = take(ring.to, len), in = take(ring.from, len);
		struct transfer both[] = {sending(&out, len, 1), receiving(&in, 1)};
		both[1].early = 1;
		fill(&out, len, i);
		run(both, 2);
		while (!holds(&in, len, i))
			in_time("bytes behind an early completion");
		give_back(&out);
		give_back(&in);
	}
	leave(&ring);
}

/* Many registrations of one range, and of ranges that overlap. */
static void registrations(void)
{
	enum { MANY = 300 };
	struct ring ring = join();
	struct buffer out = take(ring.to, MIB), in = take(ring.from, MIB);
	for (size_t i = 0; i < MANY; i++) {
		size_t at = word(5, i) % (MIB / 2), len = 1 + word(6, i) % (MIB / 2);
		struct buffer of_out = part_of(&out, at, len), of_in = part_of(&in, at, len);
		CALL(net->reg_mr(ring.to, of_out.at, len, memory(), &of_out.mr));
		CALL(net->reg_mr(ring.from, of_in.at, len, memory(), &of_in.mr));
		struct transfer both[] = {sending(&of_out, len, 1), receiving(&of_in, 1)};
		memset(in.host, CANARY, in.len);
		put(&in);
		fill(&of_out, len, i);
		run(both, 2);
		struct buffer rest = part_of(&in, at, in.len - at);
		if (!holds(&rest, len, i))
			FAIL("registration %zu, %zu bytes: other contents", i, len);
		CALL(net->dereg_mr(ring.to, of_out.mr));
		CALL(net->dereg_mr(ring.from, of_in.mr));
	}
	give_back(&out);
	give_back(&in);
	leave(&ring);
}

/* NCCL's ring: each part of the vector goes round and is added to, then round again. */
static void all_reduce(void)
{
	struct ring ring = join();
	for (size_t len = 8 * (size_t)ranks; len <= 16 * MIB; len *= 4) {
		size_t part = len / (size_t)ranks & ~7UL, values = part / 8;
		struct buffer vector = take(ring.to, part * (size_t)ranks), in = take(ring.from, part);
		uint64_t *own = (void *)vector.host;
		for (size_t i = 0; i < values * (size_t)ranks; i++)
			own[i] = i * (size_t)(rank + 1);
		for (int step = 0; step < 2 * (ranks - 1); step++) {
			size_t out = (size_t)(2 * ranks + rank - step) % (size_t)ranks, back = (out + (size_t)ranks - 1) % (size_t)ranks;
			struct buffer piece = part_of(&vector, out * part, part);
			put(&piece);
			struct transfer both[] = {sending(&piece, part, step), receiving(&in, step)};
			run(both, 2);
			get(&in);
			for (size_t i = 0; i < values; i++) {
				uint64_t x;
				memcpy(&x, in.host + 8 * i, 8);
				own[back * values + i] = step < ranks - 1 ? own[back * values + i] + x : x;
			}
		}
		for (size_t i = 0; i < values * (size_t)ranks; i++)
			if (own[i] != i * (size_t)(ranks * (ranks + 1) / 2))
				FAIL("value %zu of %zu is wrong", i, values * (size_t)ranks);
		give_back(&vector);
		give_back(&in);
	}
	leave(&ring);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"sizes", sizes},
	{"shorter", shorter},
	{"many", many},
	{"groups", groups},
	{"communicators", communicators},
	{"again", again},
	{"late", late},
	{"early", early},
	{"registrations", registrations},
	{"all_reduce", all_reduce},
};

enum { TESTS = sizeof(tests) / sizeof(tests[0]) };

/* What NCCL has done before it loads a plugin: the primary context of the first device is the thread's. */
static void use_device(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	if (!driver)
		return;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
	int (*push)(void *) = (int (*)(void *))dlsym(driver, "cuCtxPushCurrent_v2");
	CHECK(init && retain && push);
	CALL(init(0));
	CALL(retain(&context, 0));
	CALL(push(context));
}

/* A process of the ring, from the plugin's loading on. */
static void member(const char *plugin, int number, int in_device)
{
	int count = 0;
	use_device();
	void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		FAIL("%s", dlerror());
	net = dlsym(library, "ncclNetPlugin_v9");
	CHECK(net);
	if (net->init(logger) || net->devices(&count) || !count)
		_exit(NO_NETWORK);
	CALL(net->get_properties(0, &properties));
	if (in_device) {
		if (!(properties.ptr_support & NCCL_PTR_CUDA))
			_exit(NO_NETWORK);
		device.alloc = (int (*)(void **, size_t))dlsym(library, "hipMalloc");
		device.release = (int (*)(void *))dlsym(library, "hipFree");
		device.copy = (int (*)(void *, const void *, size_t, int))dlsym(library, "hipMemcpy");
		CHECK(device.alloc && device.release && device.copy);
	}
	tests[number].run();
	exit(0);
}

int main(int argc, char **argv)
{
	int number = 0, worst = 0;
	const char *seconds = getenv("SQUALL_TEST_DEADLINE");
	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (int i = 0; i < TESTS; i++)
			puts(tests[i].name);
		return 0;
	}
	CHECK(argc == 5 && (!strcmp(argv[4], "host") || !strcmp(argv[4], "device")));
	ranks = atoi(argv[2]);
	CHECK(ranks >= 2 && ranks <= MOST_RANKS);
	deadline = time(NULL) + (seconds ? atoi(seconds) : 60);
	while (number < TESTS && strcmp(tests[number].name, argv[3]))
		number++;
	CHECK(number < TESTS);
	for (int i = 0; i < ranks; i++)
		CHECK(pipe(handles[i]) == 0);
	pid_t members[MOST_RANKS];
	for (rank = 0; rank < ranks; rank++) {
		members[rank] = fork();
		CHECK(members[rank] >= 0);
		if (!members[rank]) {
			enter_host(rank);
			member(argv[1], number, !strcmp(argv[4], "device"));
		}
	}
	for (int ended = 0; ended < ranks; ended++) {
		int status;
		pid_t pid = wait(&status);
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (!code || worst)
			continue;
		worst = code;
		if (WIFSIGNALED(status))
			fprintf(stderr, "signal %d\n", WTERMSIG(status));
		/* The others may wait for it for ever. */
		for (int i = 0; i < ranks; i++)
			if (members[i] != pid)
				kill(members[i], SIGKILL);
	}
	return worst;
}
