// A program of the CUDA runtime, linked with it statically: it finds the driver by its own road. It keeps a buffer, adds to it with a kernel
// through a captured graph, and checks it, one line of standard input at a time.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

static void must(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        printf("wrong: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

__device__ unsigned launches;

__global__ void add(unsigned *words, unsigned count, unsigned value) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at == 0) {
        launches += 1;
    }
    if (at < count) {
        words[at] += value;
    }
}

int main() {
    const unsigned count = 4 << 20;
    unsigned *words = nullptr, *small = nullptr, *staged = nullptr;
    must(cudaMalloc(&words, count * sizeof *words), "cudaMalloc");
    must(cudaMalloc(&small, 64 * sizeof *small), "cudaMalloc");
    must(cudaMallocHost(&staged, count * sizeof *staged), "cudaMallocHost");
    for (unsigned at = 0; at < count; ++at) {
        staged[at] = at;
    }
    must(cudaMemcpy(words, staged, count * sizeof *words, cudaMemcpyHostToDevice), "cudaMemcpy");
    must(cudaMemset(small, 7, 64 * sizeof *small), "cudaMemset");

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    must(cudaStreamCreate(&stream), "cudaStreamCreate");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    add<<<count / 256, 256, 0, stream>>>(words, count, 3);
    must(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    must(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");

    printf("ready %d\n", getpid());
    fflush(stdout);
    char line[64];
    for (unsigned round = 1; fgets(line, sizeof line, stdin) && strncmp(line, "check", 5) == 0; ++round) {
        must(cudaGraphLaunch(instance, stream), "cudaGraphLaunch");
        must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        must(cudaMemcpy(staged, words, count * sizeof *words, cudaMemcpyDeviceToHost), "cudaMemcpy");
        unsigned wrong = 0, launched = 0;
        for (unsigned at = 0; at < count; ++at) {
            wrong += staged[at] != at + 3 * round;
        }
        must(cudaMemcpyFromSymbol(&launched, launches, sizeof launched), "cudaMemcpyFromSymbol");
        std::vector<unsigned char> bytes(64 * sizeof *small);
        must(cudaMemcpy(bytes.data(), small, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (unsigned char byte : bytes) {
            wrong += byte != 7;
        }
        if (wrong != 0 || launched != round) {
            printf("wrong: %u words, %u launches in round %u\n", wrong, launched, round);
            return 1;
        }
        printf("ok\n");
        fflush(stdout);
    }
    return 0;
}
