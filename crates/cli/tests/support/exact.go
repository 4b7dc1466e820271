// Fills 32 MiB in eight goroutines, verifies it and prints its numa_maps.
package main

import (
	"fmt"
	"os"
	"sync"
)

func main() {
	var done sync.WaitGroup
	blocks := make([][]byte, 8)
	for i := range blocks {
		done.Add(1)
		go func() {
			defer done.Done()
			blocks[i] = make([]byte, 4<<20)
			for at := range blocks[i] {
				blocks[i][at] = byte(i + 1)
			}
		}()
	}
	done.Wait()
	for i := range blocks {
		for _, value := range blocks[i] {
			if value != byte(i+1) {
				os.Exit(9)
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		os.Exit(8)
	}
	fmt.Print(string(maps))
}
