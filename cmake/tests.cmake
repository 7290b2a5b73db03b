# One test program per folder: every src/<folder>/**/*_test.cc, plus tests/*_test.cc (across layers).
if(NOT TIDEPOOL_TESTS)
  return()
endif()
enable_testing()
find_package(GTest REQUIRED)
find_package(ZLIB REQUIRED)
include(GoogleTest)

function(tidepool_add_tests name)
  if(NOT ARGN)
    return()
  endif()
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  target_link_libraries(${name} PRIVATE tidepool_core tidepool_flags tidepool_test_support GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 900
                       ENVIRONMENT "TIDEPOOL_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
                       ENVIRONMENT_MODIFICATION "TIDEPOOL_PROGRAM=set:${CMAKE_BINARY_DIR}/tidepool")
endfunction()

# tests/*.cc that are not tests: case lists, comparators, test stores.
file(GLOB TIDEPOOL_TEST_SUPPORT CONFIGURE_DEPENDS tests/*.cc)
list(FILTER TIDEPOOL_TEST_SUPPORT EXCLUDE REGEX "_test\\.cc$")
if(TIDEPOOL_TEST_SUPPORT)
  add_library(tidepool_test_support STATIC ${TIDEPOOL_TEST_SUPPORT})
  target_include_directories(tidepool_test_support PUBLIC tests src)
  target_link_libraries(tidepool_test_support PUBLIC tidepool_core PRIVATE tidepool_flags GTest::gtest ZLIB::ZLIB)
else()
  add_library(tidepool_test_support INTERFACE)
endif()

foreach(folder base text device graph tensor policy ops nn cache model engine)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${folder}/*_test.cc)
  tidepool_add_tests(${folder}_test ${sources})
endforeach()
file(GLOB sources CONFIGURE_DEPENDS tests/*_test.cc)
list(FILTER sources EXCLUDE REGEX "(golden_.*|allocation)_test\\.cc$")
tidepool_add_tests(step_test ${sources})
target_link_libraries(step_test PRIVATE tidepool_cli)
tidepool_add_tests(allocation_test tests/allocation_test.cc)  # replaces operator new

# Golden cases: label `golden`, directory from TIDEPOOL_GOLDEN_DIR (a relative one counts from the repository's root).
file(GLOB sources CONFIGURE_DEPENDS tests/golden_*_test.cc)
if(sources)
  add_executable(golden_test ${sources})
  target_include_directories(golden_test PRIVATE src tests)
  target_link_libraries(golden_test PRIVATE tidepool_core tidepool_flags tidepool_test_support GTest::gtest GTest::gtest_main)
  gtest_discover_tests(golden_test DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES LABELS golden TIMEOUT 900
                       ENVIRONMENT "TIDEPOOL_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
                       ENVIRONMENT_MODIFICATION "TIDEPOOL_PROGRAM=set:${CMAKE_BINARY_DIR}/tidepool")
endif()

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME layers_point_down COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_layers.py)
add_test(NAME check_layers_catches_a_forbidden_include COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_layers.py --self-test)

# Faults planted one at a time: that each can still be planted is a test, that tests find each is a target of its own.
add_test(NAME mutations_still_apply COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/mutate.py --check)
add_custom_target(mutation COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/mutate.py USES_TERMINAL)

# Random schedules beyond those of every build: four processes, one for each part of the seeds, without a time limit.
set(TIDEPOOL_CAMPAIGN 100000 CACHE STRING "number of random schedules of the target `schedules`")
add_custom_target(schedules
  COMMAND sh -c "seq 0 3 | xargs -P 4 -I{} env TIDEPOOL_SOURCE_DIR=${CMAKE_SOURCE_DIR} TIDEPOOL_SCHEDULES=${TIDEPOOL_CAMPAIGN} $<TARGET_FILE:step_test> --gtest_filter=Part/Transparency.*/{}"
  DEPENDS step_test VERBATIM USES_TERMINAL)
