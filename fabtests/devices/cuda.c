/* A stand-in for libcuda.so.1: the driver API as far as memory goes, with two devices, their primary contexts and others,
 * streams that a thread serves, and memory that the CPU dies of (standin.h). As in the real one, calls want a current
 * context, and a copy is asynchronous only with host memory of cuMemHostAlloc. */
#include "standin.h"

#include <time.h>

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	NOT_READY = 600,
	CONTEXT_IS_DESTROYED = 709,
	LAUNCH_FAILED = 719,
	UNKNOWN = 999,
};

#define DEVICES 2

struct context {
	int device, primary, users, destroyed;
};

struct job {
	struct job *next;
	struct stream *stream;
	char *host;
	char *device;
	size_t len;
	int to_host, fails;
	struct event *event;
};

struct stream {
	struct context *context;
	struct job *first, **last;
	int result;
};

struct event {
	int done, result, recorded;
};

static int initialised;
static struct context primary[DEVICES];
static struct context others[16];
static __thread struct context *stack[16];
static __thread int depth;
static struct {
	char *at;
	size_t len;
} pinned[MOST];
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams[64];

static struct context *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static int usable(void)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!current())
		return INVALID_CONTEXT;
	return current()->destroyed ? CONTEXT_IS_DESTROYED : SUCCESS;
}

/* Runs a job. Under the lock. */
static int carry_out(const struct job *job)
{
	char *own = inside(job->device, job->len);
	if (job->fails)
		return LAUNCH_FAILED;
	if (!own)
		return INVALID_VALUE;
	if (job->to_host)
		memcpy(job->host, own, job->len);
	else
		memcpy(own, job->host, job->len);
	return SUCCESS;
}

/* The device: one job at a time, each some while after it was ordered. */
static void *serve(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct stream *stream = NULL;
		for (int i = 0; i < 64 && !stream; i++)
			if (streams[i] && streams[i]->first)
				stream = streams[i];
		if (!stream) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		pthread_mutex_lock(&lock);
		struct job *job = stream->first;
		if (job->event) {
			job->event->done = 1;
			job->event->result = stream->result;
			stream->result = SUCCESS;
		} else {
			int result = carry_out(job);
			if (result)
				stream->result = result;
		}
		stream->first = job->next;
		if (!stream->first)
			stream->last = &stream->first;
		free(job);
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

int cuInit(unsigned flags)
{
	static pthread_t thread;
	if (says("STANDIN_CUDA", "broken"))
		return UNKNOWN;
	if (flags)
		return INVALID_VALUE;
	if (!initialised) {
		for (int i = 0; i < DEVICES; i++)
			primary[i] = (struct context){.device = i, .primary = 1};
		if (pthread_create(&thread, NULL, serve, NULL))
			return UNKNOWN;
		pthread_detach(thread);
	}
	initialised = 1;
	return SUCCESS;
}

int cuDriverGetVersion(int *version)
{
	*version = 12000;
	return SUCCESS;
}

int cuGetErrorName(int error, const char **text)
{
	*text = error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR";
	return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
	*text = error == LAUNCH_FAILED ? "unspecified launch failure" : "said by the stand-in";
	return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
	*count = says("STANDIN_CUDA", "empty") ? 0 : DEVICES;
	return initialised ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return ordinal >= 0 && ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	if (!initialised || device < 0 || device >= DEVICES)
		return INVALID_DEVICE;
	primary[device].users++;
	*context = &primary[device];
	return SUCCESS;
}

int cuCtxCreate_v2(struct context **context, unsigned flags, int device)
{
	(void)flags;
	for (int i = 0; i < 16; i++) {
		if (others[i].users)
			continue;
		others[i] = (struct context){.device = device, .users = 1};
		*context = stack[depth++] = &others[i];
		return SUCCESS;
	}
	return OUT_OF_MEMORY;
}

int cuCtxDestroy_v2(struct context *context)
{
	context->destroyed = 1;
	return SUCCESS;
}

int cuCtxPushCurrent_v2(struct context *context)
{
	if (!initialised)
		return NOT_INITIALIZED;
	if (!context)
		return INVALID_CONTEXT;
	if (context->destroyed)
		return CONTEXT_IS_DESTROYED;
	if (depth == 16)
		abort();
	stack[depth++] = context;
	return SUCCESS;
}

int cuCtxPopCurrent_v2(struct context **context)
{
	if (!depth)
		return INVALID_CONTEXT;
	*context = stack[--depth];
	return SUCCESS;
}

int cuCtxGetCurrent(struct context **context)
{
	*context = current();
	return SUCCESS;
}

int cuCtxGetDevice(int *device)
{
	int rc = usable();
	if (!rc)
		*device = current()->device;
	return rc;
}

/* Nothing here captures streams: a thread's mode is kept for whoever puts it back. */
int cuThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int current_mode;
	int former = current_mode;
	current_mode = *mode;
	*mode = former;
	return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *at, size_t len)
{
	int rc = usable();
	if (rc)
		return rc;
	*at = (uint64_t)(uintptr_t)allocate(len, current()->device, current());
	return *at ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t at)
{
	return release((void *)(uintptr_t)at) ? SUCCESS : INVALID_VALUE;
}

int cuMemHostAlloc(void **at, size_t len, unsigned flags)
{
	int rc = usable();
	(void)flags;
	if (rc)
		return rc;
	char *memory = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	pthread_mutex_lock(&lock);
	rc = OUT_OF_MEMORY;
	for (int i = 0; memory && rc && i < MOST; i++) {
		if (pinned[i].at)
			continue;
		pinned[i].at = memory;
		pinned[i].len = len;
		*at = memory;
		rc = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	if (rc)
		free(memory);
	return rc;
}

int cuMemFreeHost(void *at)
{
	int rc = INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST; i++) {
		if (pinned[i].at != at)
			continue;
		pinned[i].at = NULL;
		free(at);
		rc = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t at)
{
	int rc = SUCCESS;
	if (!initialised)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	struct allocation *a = find((void *)(uintptr_t)at, 0);
	if (!a)
		rc = INVALID_VALUE;
	else if (attribute == 1)
		*(void **)value = a->context;
	else if (attribute == 2)
		*(unsigned *)value = 2;
	else if (attribute == 9)
		*(int *)value = a->device;
	else
		rc = INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Unlike that of one, those of memory it does not know are 0. */
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uint64_t at)
{
	for (unsigned i = 0; i < count; i++) {
		int rc = cuPointerGetAttribute(values[i], attributes[i], at);
		if (rc == NOT_INITIALIZED)
			return rc;
		if (rc)
			*(int *)values[i] = 0;
	}
	return SUCCESS;
}

int cuStreamCreate(struct stream **stream, unsigned flags)
{
	int rc = usable();
	(void)flags;
	if (rc)
		return rc;
	struct stream *new = calloc(1, sizeof(*new));
	new->context = current();
	new->last = &new->first;
	rc = OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (int i = 0; rc && i < 64; i++)
		if (!streams[i]) {
			*stream = streams[i] = new;
			rc = SUCCESS;
		}
	pthread_mutex_unlock(&lock);
	if (rc)
		free(new);
	return rc;
}

/* Whether it is a stream of the current context. Under the lock. */
static int known(const struct stream *stream)
{
	for (int i = 0; i < 64; i++)
		if (streams[i] == stream)
			return stream && stream->context == current();
	return 0;
}

int cuStreamDestroy_v2(struct stream *stream)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 64; i++)
		if (streams[i] == stream) {
			while (stream->first)
				pthread_cond_wait(&changed, &lock);
			streams[i] = NULL;
			free(stream);
			break;
		}
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

int cuStreamQuery(struct stream *stream)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	if (!rc)
		rc = !known(stream) ? INVALID_HANDLE : stream->first ? NOT_READY : SUCCESS;
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuStreamSynchronize(struct stream *stream)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	if (!rc)
		rc = known(stream) ? SUCCESS : INVALID_HANDLE;
	while (!rc && stream->first)
		pthread_cond_wait(&changed, &lock);
	if (!rc) {
		rc = stream->result;
		stream->result = SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int is_pinned(const char *at, size_t len)
{
	for (int i = 0; i < MOST; i++)
		if (pinned[i].at && at >= pinned[i].at && at + len <= pinned[i].at + pinned[i].len)
			return 1;
	return 0;
}

static int order(struct job job)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	if (!rc && !known(job.stream))
		rc = INVALID_HANDLE;
	if (!rc && !job.event && !inside(job.device, job.len))
		rc = INVALID_VALUE;
	if (!rc && !job.event)
		job.fails = fails();
	if (!rc && !job.event && !is_pinned(job.host, job.len)) {
		/* Synchronous, behind what is in the stream. */
		while (job.stream->first)
			pthread_cond_wait(&changed, &lock);
		rc = carry_out(&job);
	} else if (!rc) {
		struct job *queued = malloc(sizeof(*queued));
		*queued = job;
		queued->next = NULL;
		*job.stream->last = queued;
		job.stream->last = &queued->next;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t len, struct stream *stream)
{
	return order((struct job){.stream = stream, .host = host, .device = (char *)(uintptr_t)device, .len = len, .to_host = 1});
}

int cuMemcpyHtoDAsync_v2(uint64_t device, const void *host, size_t len, struct stream *stream)
{
	return order((struct job){.stream = stream, .host = (char *)(uintptr_t)host, .device = (char *)(uintptr_t)device, .len = len});
}

/* For the application: no stream, no failures. */
static int plain(struct job job)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	if (!rc)
		rc = carry_out(&job);
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuMemcpyDtoH_v2(void *host, uint64_t device, size_t len)
{
	return plain((struct job){.host = host, .device = (char *)(uintptr_t)device, .len = len, .to_host = 1});
}

int cuMemcpyHtoD_v2(uint64_t device, const void *host, size_t len)
{
	return plain((struct job){.host = (char *)(uintptr_t)host, .device = (char *)(uintptr_t)device, .len = len});
}

int cuEventCreate(struct event **event, unsigned flags)
{
	int rc = usable();
	(void)flags;
	if (!rc)
		*event = calloc(1, sizeof(**event));
	return rc;
}

int cuEventRecord(struct event *event, struct stream *stream)
{
	event->recorded = 1;
	return order((struct job){.stream = stream, .event = event});
}

int cuEventQuery(struct event *event)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	if (!rc)
		rc = event->done || !event->recorded ? event->result : NOT_READY;
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuEventSynchronize(struct event *event)
{
	int rc = usable();
	pthread_mutex_lock(&lock);
	while (!rc && event->recorded && !event->done)
		pthread_cond_wait(&changed, &lock);
	if (!rc)
		rc = event->result;
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuEventDestroy_v2(struct event *event)
{
	free(event);
	return SUCCESS;
}
