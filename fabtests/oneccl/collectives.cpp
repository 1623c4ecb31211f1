/*
 * oneCCL's collectives, every one with every type, on the network that the environment chooses:
 *
 *     collectives list                 the tests' names
 *     collectives RANKS TEST           one of them, in as many processes
 *
 * Elements are small integers, so that sums and products are exact in every type, and all of what a rank gets is compared. Ends with
 * the number of collectives that were checked, and what the library refused by name (a type that the processor has no
 * instructions for).
 */
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <oneapi/ccl.hpp>

#include "../hosts.h"

namespace {

constexpr int MOST_RANKS = 16;

struct Type {
	ccl::datatype id;
	const char *name;
	size_t size;
};
const Type TYPES[] = {
	{ccl::datatype::int8, "int8", 1},	{ccl::datatype::uint8, "uint8", 1},
	{ccl::datatype::int16, "int16", 2},	{ccl::datatype::uint16, "uint16", 2},
	{ccl::datatype::int32, "int32", 4},	{ccl::datatype::uint32, "uint32", 4},
	{ccl::datatype::int64, "int64", 8},	{ccl::datatype::uint64, "uint64", 8},
	{ccl::datatype::float16, "float16", 2}, {ccl::datatype::float32, "float32", 4},
	{ccl::datatype::float64, "float64", 8}, {ccl::datatype::bfloat16, "bfloat16", 2},
};
const Type &FLOAT32 = TYPES[9];

struct Reduction {
	ccl::reduction id;
	const char *name;
	std::function<int(int, int)> both;
};
const Reduction REDUCTIONS[] = {
	{ccl::reduction::sum, "sum", [](int x, int y) { return x + y; }},
	{ccl::reduction::prod, "prod", [](int x, int y) { return x * y; }},
	{ccl::reduction::min, "min", [](int x, int y) { return std::min(x, y); }},
	{ccl::reduction::max, "max", [](int x, int y) { return std::max(x, y); }},
};

/* Elements of a collective: one, few, several packets, and, of one type, 16 MiB. */
const size_t COUNTS[] = {1, 17, 30000};
constexpr size_t MUCH = 4 << 20;

using Bytes = std::vector<unsigned char>;

int rank, ranks;
unsigned long checked;
std::set<std::string> refused;

/* A small integer, 0 to 255, as an element of a type. */
void put(const Type &type, unsigned char *at, int value)
{
	float single = static_cast<float>(value);
	double wide = value;
	uint32_t bits;
	memcpy(&bits, &single, sizeof(bits));
	switch (type.id) {
	case ccl::datatype::float32: memcpy(at, &single, 4); return;
	case ccl::datatype::float64: memcpy(at, &wide, 8); return;
	case ccl::datatype::bfloat16: at[0] = bits >> 16 & 255, at[1] = bits >> 24; return;
	case ccl::datatype::float16: {
		/* Another bias of the exponent, and ten bits behind the point of 23. */
		unsigned half = value ? ((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 1023) : 0;
		at[0] = half & 255, at[1] = half >> 8;
		return;
	}
	default:
		memset(at, 0, type.size);
		at[0] = static_cast<unsigned char>(value);
	}
}

/* What rank `of` gives as element `i` of a collective: 1 or 2, so that sixteen factors stay exact in a type of eight bits of
 * which few are 2. */
int given(int of, size_t i)
{
	return 1 + static_cast<int>((i + i / 251 + static_cast<size_t>(of)) % (MOST_RANKS / 4 + 1) == 0);
}

/* What it gives to rank `to`. */
int meant(int of, int to, size_t i)
{
	return static_cast<int>((i * 7 + i / 127 + static_cast<size_t>(of) * 13 + static_cast<size_t>(to) * 29) % 120);
}

Bytes filled(const Type &type, size_t count, const std::function<int(size_t)> &value)
{
	Bytes bytes(count * type.size);
	for (size_t i = 0; i < count; i++)
		put(type, &bytes[i * type.size], value(i));
	return bytes;
}

/* Compares all of it. */
void same(const std::string &what, const Bytes &got, const Bytes &expected)
{
	checked++;
	if (got == expected)
		return;
	size_t at = 0;
	while (at < got.size() && at < expected.size() && got[at] == expected[at])
		at++;
	fprintf(stderr, "rank %d: %s: byte %zu of %zu is wrong\n", rank, what.c_str(), at, expected.size());
	exit(1);
}

using Body = std::function<void(const Type &, size_t, const std::string &, const ccl::communicator &)>;

/* One body for every type and count. */
void all_types(const char *name, const ccl::communicator &comm, const Body &body)
{
	for (const Type &type : TYPES)
		for (size_t count : COUNTS)
			body(type, count, std::string(name) + " " + type.name + " x " + std::to_string(count), comm);
	body(FLOAT32, MUCH, std::string(name) + " 16 MiB", comm);
}

/* Waits for a reduction, unless this processor cannot do it: then all ranks are told so. */
bool done(const char *type, const std::function<ccl::event()> &start)
{
	try {
		start().wait();
		return true;
	} catch (const ccl::unsupported &) {
		refused.insert(type);
		return false;
	}
}

Bytes reduced(const Type &type, size_t count, const Reduction &op, size_t from)
{
	return filled(type, count, [&](size_t i) {
		int value = given(0, from + i);
		for (int of = 1; of < ranks; of++)
			value = op.both(value, given(of, from + i));
		return value;
	});
}

void allreduce(const ccl::communicator &comm)
{
	all_types("allreduce", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		for (const Reduction &op : REDUCTIONS) {
			Bytes mine = filled(type, count, [](size_t i) { return given(rank, i); }), got(mine.size());
			Bytes expected = reduced(type, count, op, 0);
			if (!done(type.name, [&] { return ccl::allreduce(mine.data(), got.data(), count, type.id, op.id, c); }))
				return;
			same(what + " " + op.name, got, expected);
			/* In place. */
			ccl::allreduce(mine.data(), mine.data(), count, type.id, op.id, c).wait();
			same(what + " in place " + op.name, mine, expected);
		}
	});
}

void reduce(const ccl::communicator &comm)
{
	all_types("reduce", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		int root = static_cast<int>(count) % ranks;
		for (const Reduction &op : REDUCTIONS) {
			Bytes mine = filled(type, count, [](size_t i) { return given(rank, i); }), got(mine.size());
			if (!done(type.name, [&] { return ccl::reduce(mine.data(), got.data(), count, type.id, op.id, root, c); }))
				return;
			if (rank == root)
				same(what + " " + op.name, got, reduced(type, count, op, 0));
		}
	});
}

void reduce_scatter(const ccl::communicator &comm)
{
	all_types("reduce_scatter", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		size_t all = count * static_cast<size_t>(ranks);
		for (const Reduction &op : REDUCTIONS) {
			Bytes mine = filled(type, all, [](size_t i) { return given(rank, i); }), got(count * type.size);
			if (!done(type.name, [&] { return ccl::reduce_scatter(mine.data(), got.data(), count, type.id, op.id, c); }))
				return;
			same(what + " " + op.name, got, reduced(type, count, op, count * static_cast<size_t>(rank)));
		}
	});
}

void allgather(const ccl::communicator &comm)
{
	all_types("allgather", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		size_t all = count * static_cast<size_t>(ranks);
		Bytes mine = filled(type, count, [](size_t i) { return meant(rank, 0, i); }), got(all * type.size);
		ccl::allgather(mine.data(), got.data(), count, type.id, c).wait();
		same(what, got, filled(type, all, [&](size_t i) { return meant(static_cast<int>(i / count), 0, i % count); }));
	});
}

/* The n-th rank's part. */
size_t part(size_t count, int n)
{
	return count / static_cast<size_t>(n + 1) + static_cast<size_t>(n % 2);
}

void allgatherv(const ccl::communicator &comm)
{
	all_types("allgatherv", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		std::vector<size_t> parts;
		Bytes expected;
		for (int of = 0; of < ranks; of++) {
			parts.push_back(part(count, of));
			Bytes theirs = filled(type, parts.back(), [&](size_t i) { return meant(of, 0, i); });
			expected.insert(expected.end(), theirs.begin(), theirs.end());
		}
		size_t own = parts[static_cast<size_t>(rank)];
		Bytes mine = filled(type, own, [](size_t i) { return meant(rank, 0, i); }), got(expected.size());
		ccl::allgatherv(mine.data(), own, got.data(), parts, type.id, c).wait();
		same(what, got, expected);
	});
}

void alltoall(const ccl::communicator &comm)
{
	all_types("alltoall", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		size_t all = count * static_cast<size_t>(ranks);
		Bytes mine = filled(type, all, [&](size_t i) { return meant(rank, static_cast<int>(i / count), i % count); });
		Bytes got(mine.size());
		ccl::alltoall(mine.data(), got.data(), count, type.id, c).wait();
		same(what, got, filled(type, all, [&](size_t i) { return meant(static_cast<int>(i / count), rank, i % count); }));
	});
}

void alltoallv(const ccl::communicator &comm)
{
	all_types("alltoallv", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		std::vector<size_t> out, in;
		Bytes mine, expected;
		for (int other = 0; other < ranks; other++) {
			/* As much as sender and receiver say together. */
			out.push_back(part(count, other) + static_cast<size_t>(rank));
			in.push_back(part(count, rank) + static_cast<size_t>(other));
			Bytes there = filled(type, out.back(), [&](size_t i) { return meant(rank, other, i); });
			Bytes here = filled(type, in.back(), [&](size_t i) { return meant(other, rank, i); });
			mine.insert(mine.end(), there.begin(), there.end());
			expected.insert(expected.end(), here.begin(), here.end());
		}
		Bytes got(expected.size());
		ccl::alltoallv(mine.data(), out, got.data(), in, type.id, c).wait();
		same(what, got, expected);
	});
}

void broadcast(const ccl::communicator &comm)
{
	all_types("broadcast", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		for (int root = 0; root < ranks; root++) {
			Bytes expected = filled(type, count, [&](size_t i) { return meant(root, 0, i); });
			Bytes got = rank == root ? expected : Bytes(expected.size());
			ccl::broadcast(got.data(), count, type.id, root, c).wait();
			same(what, got, expected);
		}
	});
}

/* Between neighbours: even ranks begin. */
void send_recv(const ccl::communicator &comm)
{
	all_types("send_recv", comm, [](const Type &type, size_t count, const std::string &what, const ccl::communicator &c) {
		int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
		Bytes mine = filled(type, count, [&](size_t i) { return meant(rank, next, i); }), got(mine.size());
		auto send = [&] { ccl::send(mine.data(), count, type.id, next, c).wait(); };
		auto recv = [&] { ccl::recv(got.data(), count, type.id, before, c).wait(); };
		if (rank % 2 == 0)
			send(), recv();
		else
			recv(), send();
		same(what, got, filled(type, count, [&](size_t i) { return meant(before, rank, i); }));
	});
}

/* Many at once, in the order in which they were begun, and barriers between them. */
void many(const ccl::communicator &comm)
{
	constexpr size_t AT_ONCE = 32, COUNT = 5000;
	for (int round = 0; round < 5; round++) {
		std::vector<Bytes> mine, got(AT_ONCE, Bytes(COUNT * 4));
		std::vector<ccl::event> events;
		for (size_t n = 0; n < AT_ONCE; n++)
			mine.push_back(filled(FLOAT32, COUNT, [&](size_t i) { return given(rank, i + n); }));
		for (size_t n = 0; n < AT_ONCE; n++)
			events.push_back(ccl::allreduce(mine[n].data(), got[n].data(), COUNT, FLOAT32.id, ccl::reduction::sum, comm));
		for (size_t n = 0; n < AT_ONCE; n++) {
			events[n].wait();
			same("many", got[n], reduced(FLOAT32, COUNT, REDUCTIONS[0], n));
		}
		ccl::barrier(comm).wait();
	}
}

struct Test {
	const char *name;
	void (*run)(const ccl::communicator &);
};
const Test TESTS[] = {
	{"allreduce", allreduce}, {"reduce", reduce},	    {"reduce_scatter", reduce_scatter}, {"allgather", allgather},
	{"allgatherv", allgatherv}, {"alltoall", alltoall}, {"alltoallv", alltoallv},		{"broadcast", broadcast},
	{"send_recv", send_recv}, {"many", many},
};

/* A process: rank 0 tells the others where the key-value store is. */
int member(const Test &test, int pipes[][2])
{
	setenv("CCL_LOCAL_RANK", std::to_string(rank).c_str(), 1);
	setenv("CCL_LOCAL_SIZE", std::to_string(ranks).c_str(), 1);
	ccl::init();
	ccl::shared_ptr_class<ccl::kvs> store;
	ccl::kvs::address_type address;
	if (rank == 0) {
		store = ccl::create_main_kvs();
		address = store->get_address();
		for (int other = 1; other < ranks; other++)
			if (write(pipes[other][1], address.data(), address.size()) != static_cast<ssize_t>(address.size()))
				return 1;
	} else {
		if (read(pipes[rank][0], address.data(), address.size()) != static_cast<ssize_t>(address.size()))
			return 1;
		store = ccl::create_kvs(address);
	}
	{
		auto comm = ccl::create_communicator(ranks, rank, store);
		test.run(comm);
		ccl::barrier(comm).wait();
	}
	if (rank == 0) {
		auto version = ccl::get_library_version();
		printf("oneCCL %u.%u.%u\n%lu collectives\n", version.major, version.minor, version.update, checked);
		for (const std::string &type : refused)
			printf("refused: %s\n", type.c_str());
	}
	return 0;
}

int guarded(const Test &test, int pipes[][2])
{
	try {
		return member(test, pipes);
	} catch (const std::exception &error) {
		fprintf(stderr, "rank %d: %s\n", rank, error.what());
		return 1;
	}
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "list")) {
		for (const Test &test : TESTS)
			puts(test.name);
		return 0;
	}
	const Test *test = argc == 3 ? std::find_if(std::begin(TESTS), std::end(TESTS),
						    [&](const Test &t) { return !strcmp(t.name, argv[2]); })
				     : std::end(TESTS);
	ranks = argc == 3 ? atoi(argv[1]) : 0;
	if (test == std::end(TESTS) || ranks < 2 || ranks > MOST_RANKS) {
		fprintf(stderr, "usage: %s list | 2..%d TEST\n", argv[0], MOST_RANKS);
		return 2;
	}
	int pipes[MOST_RANKS][2], worst = 0;
	pid_t members[MOST_RANKS];
	for (int i = 0; i < ranks; i++)
		if (pipe(pipes[i]))
			return 1;
	for (rank = 0; rank < ranks; rank++)
		if ((members[rank] = fork()) == 0) {
			enter_host(rank);
			int code = guarded(*test, pipes);
			fflush(stdout);
			exit(code);
		}
	for (int ended = 0; ended < ranks; ended++) {
		int status;
		pid_t pid = wait(&status);
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (!code || worst)
			continue;
		worst = code;
		/* The others may wait for it for ever. */
		for (int i = 0; i < ranks; i++)
			if (members[i] != pid)
				kill(members[i], SIGKILL);
	}
	return worst;
}
