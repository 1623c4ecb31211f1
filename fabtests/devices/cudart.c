/* A stand-in for libcudart.so, of which plugins use what hands out the driver's functions: those of the stand-in for
 * libcuda.so.1. What that has not, is there and says that it is not supported. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

enum { SUCCESS = 0, SYMBOL_NOT_FOUND = 500, NOT_SUPPORTED = 801 };

static int not_supported(void)
{
	return NOT_SUPPORTED;
}

int cudaRuntimeGetVersion(int *version)
{
	*version = 12000;
	return SUCCESS;
}

int cudaGetDriverEntryPoint(const char *symbol, void **at, unsigned long long flags, int *result)
{
	char second[128];
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	(void)flags;
	if (!driver)
		return SYMBOL_NOT_FOUND;
	snprintf(second, sizeof(second), "%s_v2", symbol);
	*at = dlsym(driver, second);
	if (!*at)
		*at = dlsym(driver, symbol);
	if (!*at)
		*at = (void *)not_supported;
	*result = 0;
	return SUCCESS;
}
