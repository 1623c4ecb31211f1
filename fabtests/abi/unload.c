/*
 * libfabric loaded at run time and unloaded again, as by a program that has its network in a plugin. The provider itself stays
 * mapped (-z nodelete: its threads, its thread-local destructors and its fork handler may run later than a dlclose), so what is to
 * be seen to is that nothing in it goes on, and that nothing of it calls the libfabric that went.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sys/mman.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

/* This program is not linked with libfabric. */
static struct {
	void *handle;
	uint32_t (*version)(void);
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*strerror)(int);
} loaded;

#define fi_getinfo loaded.getinfo
#define fi_freeinfo loaded.freeinfo
#define fi_allocinfo() loaded.dupinfo(NULL)
#define fi_fabric loaded.fabric
#define fi_strerror loaded.strerror

#include "own_process.h"

static void *function(const char *name)
{
	void *found = dlsym(loaded.handle, name);
	if (!found)
		FAIL("libfabric has no %s", name);
	return found;
}

static void load_from(const char *file)
{
	loaded.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!loaded.handle) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	loaded.version = function("fi_version");
	loaded.getinfo = function("fi_getinfo");
	loaded.freeinfo = function("fi_freeinfo");
	loaded.dupinfo = function("fi_dupinfo");
	loaded.fabric = function("fi_fabric");
	loaded.strerror = function("fi_strerror");
}

static void load(void)
{
	load_from("libfabric.so.1");
}

/* How many mappings are of files whose path ends so. */
static int mapped(const char *end)
{
	char line[1024];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		size_t len = strlen(line), tail = strlen(end);
		found += len >= tail && strcmp(line + len - tail, end) == 0;
	}
	fclose(f);
	return found;
}

/* How many threads have a name that begins so. */
static int threads(const char *begin)
{
	DIR *tasks = opendir("/proc/self/task");
	int found = 0;
	CHECK(tasks != NULL);
	for (struct dirent *task; (task = readdir(tasks));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f))
			found += strncmp(name, begin, strlen(begin)) == 0;
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return found;
}

/* Whether from `least` to `most` threads of that name are there, soon: one takes its name when it first runs, and is listed a
 * little longer than it takes to join it. */
static int become(const char *begin, int least, int most)
{
	for (int tries = 0; tries < 1000; tries++) {
		int found = threads(begin);
		if (least <= found && found <= most)
			return 1;
		usleep(10000);
	}
	return 0;
}

/* Where the loader had put libfabric. */
static struct link_map *place(void)
{
	struct link_map *map = NULL;
	EQUAL(dlinfo(loaded.handle, RTLD_DI_LINKMAP, &map), 0);
	return map;
}

/* Unloads it, and sees to it that nothing else comes to lie where it was: who calls it there ends the process. */
static void unload(void)
{
	char file[512];
	uintptr_t begin = UINTPTR_MAX, end = 0, from, to;
	snprintf(file, sizeof(file), "%s", place()->l_name);
	char line[1024], real[PATH_MAX];
	CHECK(realpath(file, real) != NULL);
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), f))
		if (strstr(line, real) && sscanf(line, "%lx-%lx", &from, &to) == 2) {
			begin = from < begin ? from : begin;
			end = to > end ? to : end;
		}
	fclose(f);
	CHECK(begin < end && mapped(real) > 0 && mapped("libsquall-fi.so") > 0);
	EQUAL(dlclose(loaded.handle), 0);
	loaded.handle = NULL;
	EQUAL(mapped(real), 0);
	void *hole = mmap((void *)begin, end - begin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(hole == (void *)begin);
	/* On purpose. */
	CHECK(mapped("libsquall-fi.so") > 0);
}

/* A message of each protocol, both ways. */
static void talk(void)
{
	static unsigned char out[200000], in[200000];
	size_t lens[] = {0, 8, 3000, 70000, 200000};
	fi_addr_t to_a = abi_insert(&b, &a.name);
	for (unsigned i = 0; i < 5; i++)
		for (int back = 0; back < 2; back++) {
			struct fi_cq_tagged_entry e;
			struct node *from = back ? &b : &a, *to = back ? &a : &b;
			abi_fill(out, lens[i], i);
			EQUAL(fi_recv(to->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
			RETRY(from, fi_send(from->ep, out, lens[i], NULL, back ? to_a : to_b, contexts));
			abi_expect(from, to, &e);
			CHECK(e.op_context == contexts);
			abi_expect(to, from, &e);
			abi_verify(in, lens[i], i);
		}
}

static void open_both(enum fi_progress progress)
{
	struct want want = plain;
	want.progress = progress;
	open_pair(&want);
}

static void closed_and_unloaded(enum fi_progress progress)
{
	load();
	open_both(progress);
	talk();
	int own = progress == FI_PROGRESS_AUTO ? 2 : 0;
	CHECK(become("squall-prog", own, own));
	CHECK(become("squall-", 1, INT_MAX));
	abi_close(&a);
	abi_close(&b);
	unload();
	CHECK(become("squall-", 0, 0));
}

static void closed_and_unloaded_manual(void)
{
	closed_and_unloaded(FI_PROGRESS_MANUAL);
}

static void closed_and_unloaded_auto(void)
{
	closed_and_unloaded(FI_PROGRESS_AUTO);
}

/* With operations under way, in all kinds of threads that there are. */
static void unloaded_with_all_open(void)
{
	static unsigned char out[200000];
	struct fid_cq *cond;
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_MUTEX_COND};
	struct fi_mutex_cond native;
	load();
	open_both(FI_PROGRESS_AUTO);
	talk();
	struct want want = plain;
	struct node manual;
	abi_open(&manual, &want);
	EQUAL(fi_cq_open(manual.domain, &attr, &cond, NULL), 0);
	EQUAL(fi_control(&cond->fid, FI_GETWAIT, &native), 0);
	fi_addr_t to_manual = abi_insert(&a, &manual.name);
	for (int i = 0; i < 8; i++) {
		/* One that is never received, and one for a peer that never makes progress. */
		RETRY(&a, fi_tsend(a.ep, out, sizeof(out), NULL, to_b, 1, NULL));
		RETRY(&a, fi_tsend(a.ep, out, sizeof(out), NULL, to_manual, 1, NULL));
	}
	CHECK(become("squall-prog", 1, INT_MAX) && become("squall-attend", 1, INT_MAX));
	unload();
	CHECK(become("squall-prog", 0, 0) && become("squall-attend", 0, 0));
	/* Time for whatever may still run to do what it would do. */
	usleep(300000);
}

/* Who loads it again gets another libfabric, at another place, which knows nothing of the first one. */
static void loaded_again(void)
{
	for (int i = 0; i < 3; i++) {
		load();
		open_both(i % 2 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO);
		talk();
		abi_close(&a);
		abi_close(&b);
		unload();
		CHECK(become("squall-", 0, 0));
	}
}

/* A copy of libfabric, which the loader takes for another one. */
static void copy(const char *from, const char *to)
{
	char bytes[1 << 16];
	FILE *in = fopen(from, "r"), *out = fopen(to, "w");
	CHECK(in && out);
	for (size_t n; (n = fread(bytes, 1, sizeof(bytes), in)) > 0;)
		EQUAL(fwrite(bytes, 1, n, out), n);
	fclose(in);
	EQUAL(fclose(out), 0);
}

/* Of two libfabrics in a process, as an MPI and a plugin bring them, one goes: the other keeps what it uses. */
static void one_of_two_unloaded(void)
{
	char second[600];
	snprintf(second, sizeof(second), "%s.libfabric.so", stats);
	load();
	open_both(FI_PROGRESS_AUTO);
	copy(place()->l_name, second);
	typeof(loaded) first = loaded;
	load_from(second);
	struct want want = plain;
	struct node other;
	abi_open(&other, &want);
	abi_close(&other);
	unload();
	unlink(second);
	loaded = first;
	CHECK(become("squall-prog", 2, 2));
	CHECK(become("squall-attend", 1, INT_MAX));
	talk();
	abi_close(&a);
	abi_close(&b);
	unload();
	CHECK(become("squall-", 0, 0));
}

/* What the second libfabric shows of squall: its parameters, and what it logs. */
static void known_to_the_second(void)
{
	const char *words[] = {"FI_EP_DGRAM is not offered"};
	for (int i = 0; i < 2; i++) {
		struct fi_param *params;
		int count = 0, ours = 0;
		load();
		int (*getparams)(struct fi_param **, int *) = function("fi_getparams");
		void (*freeparams)(struct fi_param *) = function("fi_freeparams");
		struct fi_info *hints = fi_allocinfo(), *found = NULL;
		hints->ep_attr->type = FI_EP_DGRAM;
		hints->fabric_attr->prov_name = strdup("squall");
		log_begin();
		EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found), -FI_ENODATA);
		log_says(words, 1);
		fi_freeinfo(hints);
		EQUAL(getparams(&params, &count), 0);
		for (int p = 0; p < count; p++)
			ours += strncmp(params[p].name, "FI_SQUALL_", 10) == 0;
		freeparams(params);
		CHECK(ours > 20);
		unload();
	}
}

#define ATTENDED(name, log) {#name, name, NULL, NULL, log, {"FI_SQUALL_ATTEND=10ms"}}

static const struct test tests[] = {
	ATTENDED(closed_and_unloaded_manual, 0), ATTENDED(closed_and_unloaded_auto, 0), ATTENDED(unloaded_with_all_open, 0),
	ATTENDED(loaded_again, 0),		 ATTENDED(known_to_the_second, 1),	ATTENDED(one_of_two_unloaded, 0),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
