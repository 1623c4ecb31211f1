/*
 * The virtual time of calls that send an operation of a facility: a barrier of a group, and a message from device memory.
 *
 *   facilities
 *
 * One process with two endpoints, for virtual time. Each call sends one message before it returns, so it has to take as long as
 * fi_send. The program prints a line `NAME NANOSECONDS` for each of them, by its own clock. The memory is that of the stand-in
 * for CUDA (fabtests/devices), which LD_LIBRARY_PATH has to name.
 */
#include "../abi/group.h"

#include <dlfcn.h>

static const struct want facilities = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_COLLECTIVE | FI_HMEM,
	.mr_mode = FI_MR_HMEM,
};

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Waits for a completion of the first endpoint, while both make progress. */
static void end_of_send(void)
{
	struct fi_cq_tagged_entry entry;

	EQUAL(group_next(&members[0], &entry), 1);
}

/* Loads the stand-in, as an application would, and allocates memory of the device. */
static void *allocate(size_t len)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
	uint64_t at = 0;

	if (!library)
		FAIL("%s", dlerror());
	int (*init)(unsigned) = dlsym(library, "cuInit");
	int (*primary)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
	int (*push)(void *) = dlsym(library, "cuCtxPushCurrent_v2");
	int (*alloc)(uint64_t *, size_t) = dlsym(library, "cuMemAlloc_v2");
	CHECK(init && primary && push && alloc);
	EQUAL(init(0), 0);
	EQUAL(primary(&context, 0), 0);
	EQUAL(push(context), 0);
	EQUAL(alloc(&at, len), 0);
	return (void *)(uintptr_t)at;
}

int main(void)
{
	enum { LEN = 64 };
	void *device = allocate(LEN);
	struct iovec iov = {device, LEN};
	struct fid_mr *mr;
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1, .access = FI_SEND, .requested_key = 1, .iface = FI_HMEM_CUDA,
	};
	int64_t begin;

	group_begin(2, &facilities);
	struct fid_ep *ep = members[0].n.ep;
	EQUAL(fi_mr_regattr(members[0].n.domain, &attr, FI_HMEM_DEVICE_ONLY, &mr), 0);
	void *desc = fi_mr_desc(mr);
	for (int i = 0; i < 2; i++)
		EQUAL(fi_recv(members[1].n.ep, buf, LEN, NULL, FI_ADDR_UNSPEC, &contexts[i]), 0);

	begin = now();
	EQUAL(fi_send(ep, buf + LEN, LEN, NULL, 1, &contexts[2]), 0);
	printf("send %lld\n", (long long)(now() - begin));
	end_of_send();

	/* Injected bytes are copied in the call. */
	struct fi_msg message = {.msg_iov = &iov, .iov_count = 1, .desc = &desc, .addr = 1, .context = &contexts[3]};
	begin = now();
	EQUAL(fi_sendmsg(ep, &message, FI_INJECT | FI_COMPLETION), 0);
	printf("staged %lld\n", (long long)(now() - begin));
	end_of_send();

	begin = now();
	EQUAL(fi_barrier(ep, members[0].group, &contexts[4]), 0);
	printf("barrier %lld\n", (long long)(now() - begin));
	EQUAL(fi_barrier(members[1].n.ep, members[1].group, &contexts[4]), 0);

	struct fi_cq_tagged_entry entry;
	for (int i = 0; i < 2; i++)
		EQUAL(group_next(&members[1], &entry), 1);
	group_done(&contexts[4]);
	EQUAL(fi_close(&mr->fid), 0);
	group_leave();
	group_end();
	return 0;
}
