/* A stand-in for libze_loader.so.1, as far as memory goes (standin.h): one driver with two devices. */
#include "standin.h"

enum { ZE_SUCCESS = 0, UNINITIALIZED = 0x78000001, INVALID_ARGUMENT = 0x78000004, DEVICE_LOST = 0x70000001 };

struct queue_desc {
	uint32_t kind;
	const void *next;
	uint32_t ordinal, index, flags, mode, priority;
};

static int initialised;
static char driver, context, device[2], list[2];

int zeInit(uint32_t flags)
{
	if (flags != 1 || says("STANDIN_ZE", "broken"))
		return UNINITIALIZED;
	initialised = 1;
	return ZE_SUCCESS;
}

int zeDriverGet(uint32_t *count, void **drivers)
{
	if (!initialised)
		return UNINITIALIZED;
	if (*count && drivers)
		*drivers = &driver;
	*count = 1;
	return ZE_SUCCESS;
}

int zeDeviceGet(void *of, uint32_t *count, void **devices)
{
	uint32_t have = says("STANDIN_ZE", "empty") ? 0 : 2;
	if (of != &driver)
		return INVALID_ARGUMENT;
	for (uint32_t i = 0; devices && i < *count && i < have; i++)
		devices[i] = &device[i];
	*count = have;
	return ZE_SUCCESS;
}

int zeContextCreate(void *of, const void *desc, void **made)
{
	if (of != &driver || *(const uint32_t *)desc != 0xd)
		return INVALID_ARGUMENT;
	*made = &context;
	return ZE_SUCCESS;
}

int zeCommandListCreateImmediate(void *in, void *of, const struct queue_desc *desc, void **made)
{
	if (in != &context || desc->kind != 0xe || desc->mode != 1 || (of != &device[0] && of != &device[1]))
		return INVALID_ARGUMENT;
	*made = &list[(char *)of - device];
	return ZE_SUCCESS;
}

static int copy(void *to, const void *from, size_t len, int may_fail)
{
	int rc = ZE_SUCCESS;
	pthread_mutex_lock(&lock);
	char *inside_to = inside(to, len), *inside_from = inside(from, len);
	if (may_fail && fails())
		rc = DEVICE_LOST;
	else if (!inside_to == !inside_from)
		rc = INVALID_ARGUMENT;
	else
		memcpy(inside_to ? inside_to : to, inside_from ? inside_from : from, len);
	pthread_mutex_unlock(&lock);
	return rc;
}

int zeCommandListAppendMemoryCopy(void *in, void *to, const void *from, size_t len, void *signal, uint32_t waits, void **events)
{
	if ((in != &list[0] && in != &list[1]) || signal || waits || events)
		return INVALID_ARGUMENT;
	return copy(to, from, len, 1);
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
