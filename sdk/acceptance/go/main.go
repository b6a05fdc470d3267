// Buys RESOURCE with x402's own Go package and the key BUYER_KEY; prints the status, whether a settlement came back, and the answer.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"

	x402 "github.com/x402-foundation/x402/go"
	x402http "github.com/x402-foundation/x402/go/http"
	exactevm "github.com/x402-foundation/x402/go/mechanisms/evm/exact/client"
	evmsigners "github.com/x402-foundation/x402/go/signers/evm"
)

func main() {
	signer, err := evmsigners.NewClientSignerFromPrivateKey(os.Getenv("BUYER_KEY"))
	check(err)
	client := x402.Newx402Client()
	client.Register("eip155:*", exactevm.NewExactEvmScheme(signer, nil))
	paying := x402http.WrapHTTPClientWithPayment(&http.Client{}, x402http.Newx402HTTPClient(client))
	response, err := paying.Get(os.Getenv("RESOURCE"))
	check(err)
	body, err := io.ReadAll(response.Body)
	check(err)
	fmt.Println(response.StatusCode, response.Header.Get("Payment-Response") != "", string(body))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
