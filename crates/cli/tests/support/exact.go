package main

import (
	"fmt"
	"os"
	"sync"
)

func main() {
	var all sync.WaitGroup
	kept := make([][]byte, 8)
	for i := range kept {
		all.Add(1)
		go func() {
			defer all.Done()
			kept[i] = make([]byte, 4<<20)
			for at := range kept[i] {
				kept[i][at] = byte(i + 1)
			}
		}()
	}
	all.Wait()
	for i := range kept {
		for _, value := range kept[i] {
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
