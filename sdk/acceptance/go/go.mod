module example.com/buyer

go 1.24.0
