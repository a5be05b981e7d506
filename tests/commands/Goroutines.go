// Goroutines, channels and garbage collection.
package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
)

func main() {
	var group sync.WaitGroup
	sums := make(chan int, 8)
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func(from int) {
			defer group.Done()
			sum := 0
			for n := 0; n < 200; n++ {
				block := make([]byte, 4096)
				block[n] = byte(from)
				sum += int(block[n]) + n
				if n%50 == 0 {
					runtime.Gosched()
				}
			}
			sums <- sum
		}(worker)
	}
	group.Wait()
	close(sums)
	total := 0
	for sum := range sums {
		total += sum
	}
	runtime.GC()
	var statistics runtime.MemStats
	runtime.ReadMemStats(&statistics)
	output, err := exec.Command("echo", "from a child").Output()
	fmt.Println(total, statistics.NumGC > 0, string(output), err)
}
