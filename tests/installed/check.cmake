# Installs BUILD into a folder of its own, copies two examples out of the tree, builds them there and runs them.
set(there ${BUILD}/installed_check)
file(REMOVE_RECURSE ${there})
file(COPY ${EXAMPLES}/first_gradient.cpp ${EXAMPLES}/new_layer.cpp ${CMAKE_CURRENT_LIST_DIR}/CMakeLists.txt
     DESTINATION ${there}/source)
foreach(command
        "${CMAKE_COMMAND};--install;${BUILD};--prefix;${there}/prefix"
        "${CMAKE_COMMAND};-S;${there}/source;-B;${there}/build;-DCMAKE_PREFIX_PATH=${there}/prefix;-DCMAKE_CXX_COMPILER=${COMPILER}"
        "${CMAKE_COMMAND};--build;${there}/build"
        "${there}/build/first_gradient"
        "${there}/build/new_layer")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
