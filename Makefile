# The developer's front door; CMake and Ninja do the work. `make help` lists the targets.
BUILD ?= build
CMAKE_FLAGS ?=

.PHONY: all
all: $(BUILD)/build.ninja ## build the library, the command and the examples
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) -G Ninja $(CMAKE_FLAGS)
