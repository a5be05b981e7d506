// A web server and its clients: `web PORT`.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

func main() {
	address := ":" + os.Args[1]
	listener, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", r.URL.Path, count)
	}))
	var group sync.WaitGroup
	answers := make([]string, 32)
	for at := range answers {
		group.Add(1)
		go func() {
			defer group.Done()
			host := []string{"127.0.0.1", "[::1]", "localhost"}[at%3]
			body := strings.NewReader(strings.Repeat("x", at*1000))
			answer, err := http.Post(fmt.Sprintf("http://%s%s/%d", host, address, at), "text/plain", body)
			if err != nil {
				answers[at] = err.Error()
				return
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			answers[at] = string(text)
		}()
	}
	group.Wait()
	fmt.Println(strings.Join(answers, "\n"))
	_, err = net.Dial("tcp", "127.0.0.1:1")
	fmt.Println(err)
	interfaces, _ := net.Interfaces()
	fmt.Println(interfaces[0].Name, interfaces[0].MTU, interfaces[0].Flags)
}
