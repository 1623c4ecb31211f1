/* A program that is linked without shared libraries, which `squall run --virtual` refuses. */
int main(void)
{
	return 0;
}
