/* A stand-in for libhsa-runtime64.so.1, as far as memory goes (standin.h). */
#include "standin.h"

enum { HSA_SUCCESS = 0, HSA_ERROR = 0x1000, INVALID_ARGUMENT = 0x1001, NOT_INITIALIZED = 0x100B };

struct pointer_info {
	uint32_t size, kind;
	void *agent_base, *host_base;
	size_t bytes;
};

static int initialised;

int hsa_init(void)
{
	if (says("STANDIN_ROCR", "broken"))
		return HSA_ERROR;
	initialised = 1;
	return HSA_SUCCESS;
}

int hsa_status_string(int status, const char **text)
{
	*text = status ? "said by the stand-in" : "success";
	return HSA_SUCCESS;
}

int hsa_amd_pointer_info(void *at, struct pointer_info *info, void *alloc, uint32_t *count, void **agents)
{
	(void)alloc, (void)count, (void)agents;
	if (!initialised)
		return NOT_INITIALIZED;
	if (info->size < sizeof(*info))
		return INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	struct allocation *a = find(at, 0);
	info->kind = a ? 1 : 0;
	info->agent_base = a ? a->given : NULL;
	info->bytes = a ? a->len : 0;
	pthread_mutex_unlock(&lock);
	return HSA_SUCCESS;
}

static int copy(void *to, const void *from, size_t len, int may_fail)
{
	int rc = HSA_SUCCESS;
	pthread_mutex_lock(&lock);
	/* Addresses that it does not know are the host's, as in the real one. */
	char *inside_to = inside(to, len), *inside_from = inside(from, len);
	if (may_fail && fails())
		rc = HSA_ERROR;
	else
		memcpy(inside_to ? inside_to : to, inside_from ? inside_from : from, len);
	pthread_mutex_unlock(&lock);
	return rc;
}

int hsa_memory_copy(void *to, const void *from, size_t len)
{
	return initialised ? copy(to, from, len, 1) : NOT_INITIALIZED;
}

/* For the tests. */
void *standin_alloc(size_t len)
{
	return allocate(len, 0, NULL);
}

void standin_free(void *at)
{
	release(at);
}

void standin_copy(void *to, const void *from, size_t len)
{
	copy(to, from, len, 0);
}
