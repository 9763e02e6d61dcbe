module plinth/plinthtest/outside

go 1.22
